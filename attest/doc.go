// Package attest knows from the kernel whether an IP still belongs to the pod it was bound to.
//
// It listens to netlink for links, routes, neighbours and bridge forwarding entries, and keeps in memory which host-side
// interface (the veth where pods are routed, the bridge port where they are bridged) stands behind each address, when
// that interface was born, and when an address last lost or changed it. A pod's claim to an address counts only if it is
// younger than that. It never guesses: where the kernel shows nothing to compare, the answer is [Unavailable]. The
// package reads; it changes nothing in the kernel.
//
// # Takeover
//
// On a bridge every pod can send what it likes, and answer for another's address or MAC address. Whoever wants to be
// served under another's address must get the kernel's answer to its SYN, so the address is behind it, or behind a MAC
// address without a port, when the connection is made. The kernel notifies of that before the connection can be
// accepted. [Attest.CatchUp], called once for each connection before its first request is judged, reads every
// notification that was sent until then: one system call where there is none. From then on memory is enough:
// [Attest.Check] refutes the claim while the address is behind another port, and [Attest.MovedSince] tells that it went
// from one living interface to another since the connection was accepted, or shortly before, be it there and back. If
// notifications were lost it says so of every bridged connection from before: what it does not know it does not deny.
// Checking and asking take a lock, make no system call, and allocate nothing where the claim holds.
//
// # What stays open
//
//   - A pod that answers for another's address while that one's answer is underway is sent the answer: on a bridge,
//     whom a packet reaches is known only when it has been sent. The CNI's protection against ARP and MAC spoofing, or
//     routed pods, prevent it.
//   - Of what happened before the daemon started nothing is known. A pod that connected then, in the milliseconds
//     between the listener and the subscription, from an address that it gave back before the latter, is not noticed. The
//     same holds for a connection that waited in the listener's queue for longer than two seconds after the address was
//     given back.
//   - Without a record of the CNI, the first to use the address of a pod that has never sent anything is believed.
//   - Without a record, an address that was taken over once is nobody's until its pod has been replaced, since nothing
//     tells which of the two has it.
//   - Without a record, a pod whose sandbox was ready within the second in which its address was last somebody else's,
//     or before, is refused until it has been replaced. The API server tells whole seconds, and nothing that it says
//     later tells that pod from one that lived, and ended, within the same second: a kubelet that is behind names the
//     dead one alone, in a quorum read too. Where the API server has no condition PodReadyToStartContainers (before
//     Kubernetes 1.29) it tells the pod's start, which is before its sandbox is ready, and this happens more often. With
//     records it does not happen.
package attest
