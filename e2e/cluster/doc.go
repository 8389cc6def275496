// Package cluster holds the tests on a real node: the image that `make image` makes, installed by helm from the chart, on a
// cluster of one node with kubelet, containerd, CNI plugins, kube-proxy, API server and etcd, all of them the real ones.
//
// `make test-cluster` builds what is missing, brings the cluster up, runs the tests and takes the cluster down, whatever
// came of them. It needs root on Debian bookworm, and is no part of `make test`: built from nothing the cluster's programs
// take about eight minutes on two cores. They are kept below $POD2ROLE_CLUSTER, which is .cache/pod2role/cluster in the
// user's home if it is not set.
//
// The cluster's scripts are in bed. They install nothing, and all that runs is in namespaces of its own: the network
// namespace tb-node is the Kubernetes node, and its only neighbour is tb-cloud, which owns 169.254.169.254. There the tests
// listen as the metadata service and as STS. Neither has a way out. By hand:
//
//	e2e/cluster/bed/build; e2e/cluster/bed/up
//	e2e/cluster/bed/in node kubectl get pods -A
//	e2e/cluster/bed/down
//
// The tests have the build tag cluster, so that `go test ./...` passes them by. client is the program in their pods.
package cluster
