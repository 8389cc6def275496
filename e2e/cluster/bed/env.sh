# Sourced by the scripts beside it: where things are, and the addresses.
# What is below $CACHE can be deleted, and is then built again.
CACHE=${POD2ROLE_CLUSTER:-${XDG_CACHE_HOME:-$HOME/.cache}/pod2role/cluster}
HERE=${HERE:?}
BIN=$CACHE/bin                  # Kubernetes and etcd
DEB=$CACHE/deb                  # unpacked Debian packages (not installed)
IMAGES=$CACHE/images            # OCI archives that up imports
RUN=$CACHE/run                  # state of the running cluster; removed by down

# Network namespaces. Neither is connected to the root namespace.
NODE_NS=tb-node                 # the Kubernetes node: every program of the cluster runs here
CLOUD_NS=tb-cloud               # the node's only neighbour: where the stand-ins for AWS listen
NODE_NAME=node1
NODE_IP=10.250.0.2
CLOUD_IP=10.250.0.1
METADATA_IP=169.254.169.254     # on CLOUD_NS's loopback only
POD_CIDR=10.251.0.0/24
POD_GATEWAY=10.251.0.1
SERVICE_CIDR=10.96.0.0/16
API_CLUSTER_IP=10.96.0.1
API_PORT=6443

PATH=$BIN:$DEB/usr/bin:$DEB/usr/sbin:$PATH
[ -z "${HELM:-}" ] || PATH=$(dirname "$HELM"):$PATH
export PATH
