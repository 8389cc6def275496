// Package testnet builds, out of Linux network namespaces, a Kubernetes node with its pods and a stand-in for EC2's
// metadata service, for tests that need the real kernel.
//
// [New] makes one namespace for the node, one for each pod and one that owns 169.254.169.254 and fd00:ec2::254. The pods
// hang on a bridge ([Bridge]) or each on a routed veth ([Routed], as with Calico and the AWS VPC CNI). Without any rule on
// the node a pod reaches the stand-in: that is what a test then prevents. No namespace has a route out, so nothing that a
// test sends can reach a real metadata service.
//
// The namespaces have no name in the file system; they are held by file descriptors of the test process. They end with
// the test, and also with a test process that is killed.
//
// Tests that use the package call [Main] from TestMain: it makes them run for ordinary users too, in a user namespace.
// Where neither root nor user namespaces are to be had, [New] skips the test and says why; with CI=true it fails it.
//
// The package is for tests only, imports testing, and exists on Linux only.
package testnet
