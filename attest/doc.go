// Package attest knows from the kernel whether an IP still belongs to the pod it was bound to.
//
// It listens to netlink for links, routes, neighbours and bridge forwarding entries, and keeps in memory which host-side
// interface (the veth where pods are routed, the bridge port where they are bridged) stands behind each address, when
// that interface was born, and when an address last lost or changed it. A pod's claim to an address counts only if it is
// younger than that. It never guesses: where the kernel shows nothing to compare, the answer is [Unavailable].
//
// A claim is known in whole seconds only, so one from the same second as an end does not count: when in doubt, it may
// not. Asking takes a lock and makes no system call. The package reads; it changes nothing in the kernel.
package attest
