// Package migrate reads Kiam's and kube2iam's settings and says what pod2role would do with them.
//
// It knows what became of each of their flags. It reads; it writes nothing to a cluster and nothing to a node.
package migrate
