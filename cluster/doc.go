// Package cluster keeps a live view of this node's pods and the cluster's namespaces.
//
// A [Cluster] lists and watches the pods that are bound to its node, and all namespaces (metadata only), and turns each
// object at once into an immutable mappings.Pod or mappings.Namespace of a few hundred bytes; nothing else is kept. It
// indexes pods by UID and by address, and reads single pods from the API server for whoever cannot wait for the watch.
//
// It guarantees that a pod's pointer changes only if something changed that matters; that an address never leads to a
// pod that uses the node's network or has finished, and does lead to one that is being deleted until that is gone;
// that nothing that is older than what the watch has shown gets into the view, so that a late answer cannot bring a
// deleted pod back; and that the view keeps what it last knew while the API server is away.
//
// A [Membership] watches the program's own DaemonSet and node, and says whether the one is still for the other.
//
// It knows nothing of roles or HTTP. client-go lives only here. Whether an address still is the pod's, when the watch
// is late, is for its callers to find out.
package cluster
