package mappings

import (
	"net/netip"
	"time"
)

// Pod is what the daemon knows of one pod. A Pod is immutable: whoever keeps pods replaces the pointer when the pod
// changes, so two equal pointers mean an unchanged pod.
type Pod struct {
	UID            string
	Namespace      string
	Name           string
	ServiceAccount string
	Node           string

	// Annotations holds only the annotations that the rules read. // :: annotation key -> value
	Annotations map[string]string

	// Addrs are the pod's addresses (status.podIPs), IPv4-mapped ones unmapped. Empty until the kubelet has reported
	// them; the CNI's own record knows an address earlier.
	Addrs []netip.Addr

	// HostNetwork says that the pod uses the node's own address, which therefore identifies no pod.
	HostNetwork bool
	// Finished says that the pod's phase is Succeeded or Failed: its address may already be another pod's.
	Finished bool
	// Deleting says that the pod has a deletion timestamp; it keeps its role until it has ended.
	Deleting bool

	// SandboxReady is when the pod's network was ready (condition PodReadyToStartContainers, else startTime), in
	// whole seconds; zero when the API server does not say.
	SandboxReady time.Time

	// OtherCredentials names the mechanism, "IRSA" or "EKS Pod Identity", whose environment variables some container
	// of the pod carries: SDKs ask it before the metadata service. Empty for none.
	OtherCredentials string

	// ResourceVersion is the API server's version of the object the Pod was made from.
	ResourceVersion string
}

// Namespace is what the daemon knows of one namespace. Immutable, as [Pod] is.
type Namespace struct {
	Name string

	// Annotations holds only the annotations that the rules read. // :: annotation key -> value
	Annotations map[string]string

	// ResourceVersion is the API server's version of the object the Namespace was made from.
	ResourceVersion string
}
