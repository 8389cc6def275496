package iptables

// routing is the node's policy routing, for pods whose traffic does not come by the table local.
type routing interface {
	branches() ([]branch, error)
	// apply makes the kernel hold exactly the routing rules that the plan asks for.
	apply(plan) error
	// inspect says in which the kernel's routing rules differ from the plan, each in a sentence.
	inspect(plan) ([]string, error)
	watch() (watcher, error)
}

// A branch is the routing table of a pod that has an interface of its own in the VPC.
type branch struct {
	ipv6  bool
	table int
}
