package cluster_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"pod2role/cluster"
	"pod2role/sandbox/kubeapi"
)

func TestWhereTheNodeIsIsReadFromItsObject(t *testing.T) {
	r := synced(t, kubeapi.Config{})
	if got, err := r.ReadLocation(r.patience()); err == nil {
		t.Errorf("there is no such node, and yet: %+v", got)
	}
	for name, zone := range map[string]string{node: "eu-west-1b", "node-2": "eu-west-1c"} {
		r.apply(&corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
				"topology.kubernetes.io/zone": zone, "topology.kubernetes.io/region": "eu-west-1",
			}},
			Spec: corev1.NodeSpec{ProviderID: "aws:///" + zone + "/i-0123"},
		})
	}
	got, err := r.ReadLocation(r.patience())
	r.must(err)
	want := cluster.Location{Zone: "eu-west-1b", Region: "eu-west-1", ProviderID: "aws:///eu-west-1b/i-0123"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("location (-want +got):\n%s", diff)
	}
}
