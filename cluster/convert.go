package cluster

import (
	"net/netip"
	"reflect"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"pod2role/mappings"
)

// convertPod keeps of a pod what matters.
func convertPod(pod *corev1.Pod, keys []string) *mappings.Pod {
	return &mappings.Pod{
		UID:              string(pod.UID),
		Namespace:        pod.Namespace,
		Name:             pod.Name,
		ServiceAccount:   pod.Spec.ServiceAccountName,
		Node:             pod.Spec.NodeName,
		Annotations:      pick(pod.Annotations, keys),
		Addrs:            podAddrs(&pod.Status),
		HostNetwork:      pod.Spec.HostNetwork,
		Finished:         pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed,
		Deleting:         pod.DeletionTimestamp != nil,
		SandboxReady:     sandboxReady(&pod.Status),
		OtherCredentials: otherCredentials(&pod.Spec),
		ResourceVersion:  pod.ResourceVersion,
	}
}

// convertNamespace keeps of a namespace what matters.
func convertNamespace(ns *metav1.PartialObjectMetadata, keys []string) *mappings.Namespace {
	return &mappings.Namespace{Name: ns.Name, Annotations: pick(ns.Annotations, keys), ResourceVersion: ns.ResourceVersion}
}

// pick returns the annotations with the given keys, nil if there are none.
func pick(annotations map[string]string, keys []string) map[string]string {
	var out map[string]string
	for _, key := range keys {
		if value, ok := annotations[key]; ok {
			if out == nil {
				out = map[string]string{}
			}
			out[key] = value
		}
	}
	return out
}

// podAddrs returns all addresses of a pod, IPv4-mapped ones unmapped. What is no address is left out.
func podAddrs(status *corev1.PodStatus) []netip.Addr {
	var out []netip.Addr
	add := func(ip string) {
		addr, err := netip.ParseAddr(ip)
		if err != nil || addr.IsUnspecified() {
			return
		}
		if addr = addr.Unmap(); !slices.Contains(out, addr) {
			out = append(out, addr)
		}
	}
	for _, ip := range status.PodIPs {
		add(ip.IP)
	}
	if len(status.PodIPs) == 0 {
		add(status.PodIP)
	}
	return out
}

// sandboxReady returns since when the pod's network has been ready, in UTC. A pod whose condition says that it is not
// ready has no such time; one without the condition (Kubernetes before 1.29) has its start's.
func sandboxReady(status *corev1.PodStatus) time.Time {
	for i := range status.Conditions {
		if cond := &status.Conditions[i]; cond.Type == corev1.PodReadyToStartContainers {
			if cond.Status != corev1.ConditionTrue {
				return time.Time{}
			}
			return utc(cond.LastTransitionTime)
		}
	}
	if status.StartTime != nil {
		return utc(*status.StartTime)
	}
	return time.Time{}
}

func utc(t metav1.Time) time.Time {
	if t.IsZero() {
		return time.Time{}
	}
	return time.Unix(t.Unix(), 0).UTC()
}

// otherCredentials names the mechanism that the EKS webhooks have put into a container's environment. Where there are
// both, SDKs ask for the web identity first (https://docs.aws.amazon.com/sdkref/latest/guide/standardized-credentials.html).
func otherCredentials(spec *corev1.PodSpec) string {
	irsa, podIdentity := false, false
	look := func(env []corev1.EnvVar) {
		has := func(name string) bool {
			return slices.ContainsFunc(env, func(e corev1.EnvVar) bool { return e.Name == name })
		}
		irsa = irsa || has("AWS_ROLE_ARN") && has("AWS_WEB_IDENTITY_TOKEN_FILE")
		podIdentity = podIdentity || has("AWS_CONTAINER_CREDENTIALS_FULL_URI") || has("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE")
	}
	for i := range spec.InitContainers {
		look(spec.InitContainers[i].Env)
	}
	for i := range spec.Containers {
		look(spec.Containers[i].Env)
	}
	for i := range spec.EphemeralContainers {
		look(spec.EphemeralContainers[i].Env)
	}
	switch {
	case irsa:
		return "IRSA"
	case podIdentity:
		return "EKS Pod Identity"
	}
	return ""
}

// samePod says that two versions of a pod differ in nothing that matters: in their version at most.
func samePod(a, b *mappings.Pod) bool {
	x, y := *a, *b
	x.ResourceVersion, y.ResourceVersion = "", ""
	return reflect.DeepEqual(x, y)
}

// sameNamespace says the same of a namespace.
func sameNamespace(a, b *mappings.Namespace) bool {
	x, y := *a, *b
	x.ResourceVersion, y.ResourceVersion = "", ""
	return reflect.DeepEqual(x, y)
}
