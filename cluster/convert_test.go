package cluster

import (
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"pod2role/mappings"
)

var addrCmp = cmpopts.EquateComparable(netip.Addr{})

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

func TestOfAPodOnlyWhatMattersIsKept(t *testing.T) {
	ready := time.Date(2026, 5, 1, 10, 0, 7, 0, time.FixedZone("", 7200))
	start := metav1.NewTime(ready.Add(-time.Minute))
	env := func(names ...string) (out []corev1.Container) {
		for _, name := range names {
			out = append(out, corev1.Container{Env: []corev1.EnvVar{{Name: name}}})
		}
		return out
	}
	both := []corev1.Container{{Env: []corev1.EnvVar{{Name: "AWS_ROLE_ARN"}, {Name: "AWS_WEB_IDENTITY_TOKEN_FILE"}}}}
	for _, tt := range []struct {
		name string
		pod  corev1.Pod
		want mappings.Pod
	}{
		{name: "nothing"},
		{name: "metadata", pod: corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				UID: "u1", Namespace: "shop", Name: "reader", ResourceVersion: "7", Labels: map[string]string{"app": "x"},
				Annotations: map[string]string{"role": "r", "other": "o"}, DeletionTimestamp: &start,
			},
			Spec: corev1.PodSpec{NodeName: "n1", ServiceAccountName: "sa", HostNetwork: true},
		}, want: mappings.Pod{
			UID: "u1", Namespace: "shop", Name: "reader", ResourceVersion: "7", Annotations: map[string]string{"role": "r"},
			Node: "n1", ServiceAccount: "sa", HostNetwork: true, Deleting: true,
		}},
		{
			name: "addresses", pod: corev1.Pod{Status: corev1.PodStatus{PodIP: "10.0.0.9", PodIPs: []corev1.PodIP{
				{IP: "10.0.0.1"}, {IP: "fd00::1"}, {IP: "::ffff:10.0.0.1"}, {IP: "::ffff:10.0.0.2"}, {IP: "none"}, {IP: "0.0.0.0"},
			}}},
			want: mappings.Pod{Addrs: []netip.Addr{addr("10.0.0.1"), addr("fd00::1"), addr("10.0.0.2")}},
		},
		{
			name: "only the old field", pod: corev1.Pod{Status: corev1.PodStatus{PodIP: "10.0.0.9"}},
			want: mappings.Pod{Addrs: []netip.Addr{addr("10.0.0.9")}},
		},
		{name: "succeeded", pod: corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodSucceeded}}, want: mappings.Pod{Finished: true}},
		{name: "failed", pod: corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodFailed}}, want: mappings.Pod{Finished: true}},
		{name: "unknown", pod: corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodUnknown}}},
		{
			name: "network ready", pod: corev1.Pod{Status: corev1.PodStatus{StartTime: &start, Conditions: []corev1.PodCondition{
				{Type: corev1.PodReady, Status: corev1.ConditionTrue},
				{Type: corev1.PodReadyToStartContainers, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(ready)},
			}}},
			want: mappings.Pod{SandboxReady: ready},
		},
		{
			name: "network gone", pod: corev1.Pod{Status: corev1.PodStatus{StartTime: &start, Conditions: []corev1.PodCondition{
				{Type: corev1.PodReadyToStartContainers, Status: corev1.ConditionFalse, LastTransitionTime: metav1.NewTime(ready)},
			}}},
		},
		{
			name: "before Kubernetes 1.29", pod: corev1.Pod{Status: corev1.PodStatus{StartTime: &start}},
			want: mappings.Pod{SandboxReady: start.Time},
		},
		{name: "IRSA", pod: corev1.Pod{Spec: corev1.PodSpec{InitContainers: both}}, want: mappings.Pod{OtherCredentials: "IRSA"}},
		{name: "half of IRSA in each container", pod: corev1.Pod{Spec: corev1.PodSpec{Containers: env("AWS_ROLE_ARN", "AWS_WEB_IDENTITY_TOKEN_FILE")}}},
		{
			name: "EKS Pod Identity", pod: corev1.Pod{Spec: corev1.PodSpec{Containers: env("X", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE")}},
			want: mappings.Pod{OtherCredentials: "EKS Pod Identity"},
		},
		{
			name: "both", pod: corev1.Pod{Spec: corev1.PodSpec{InitContainers: env("AWS_CONTAINER_CREDENTIALS_FULL_URI"), Containers: both}},
			want: mappings.Pod{OtherCredentials: "IRSA"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := convertPod(&tt.pod, []string{"role", "session"})
			if diff := cmp.Diff(&tt.want, got, addrCmp); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if !samePod(got, convertPod(tt.pod.DeepCopy(), []string{"role", "session"})) {
				t.Error("converted twice, the pod differs from itself")
			}
		})
	}
}
