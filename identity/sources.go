package identity

import (
	"context"
	"net/netip"
	"time"

	"pod2role/mappings"
)

// Record is what the CNI wrote down when it gave an address to a pod.
type Record struct {
	UID, Namespace, Name string
	Interface            string // the host-side interface; empty: not known
}

// Records are the CNI's records on this node.
type Records interface {
	// Lookup returns the record that stands for addr. It is asked for every request.
	Lookup(addr netip.Addr) (Record, bool)
	// TakenBack tells of an address for which no record stands which pod had it by the last one that did, and when
	// that was seen to be gone; a zero time: no record of it is remembered. From then on the API server's word alone
	// does not count for that pod, nor for one whose sandbox was ready before: it is late.
	TakenBack(addr netip.Addr) (uid string, at time.Time)
}

// View is what the API server has said, kept at hand. Pods and namespaces are immutable; nothing that it returns may
// be modified.
type View interface {
	// Pod returns the pod with this UID, nil if it has not been seen on this node.
	Pod(uid string) *mappings.Pod
	// PodsAt returns the live pods whose status has addr: none that uses the node's network, none that has finished.
	PodsAt(addr netip.Addr) []*mappings.Pod
	// Namespace returns a namespace, nil if it has not been seen.
	Namespace(name string) *mappings.Namespace
	// Synced says that all pods have been seen once.
	Synced() bool
	// ReadPod asks the API server itself for a pod, past the watch; (nil, nil) means that there is none. The view
	// takes in what it says.
	ReadPod(ctx context.Context, namespace, name string) (*mappings.Pod, error)
	// ReadAddr asks the API server itself for the pods of this node with addr in their status.
	ReadAddr(ctx context.Context, addr netip.Addr) ([]*mappings.Pod, error)
}

// Claim is what a pod, or the record of one, says of its address.
type Claim struct {
	Addr netip.Addr
	// Ingress is the index of the interface that the connection came in by; 0: not known.
	Ingress int
	// Interface is the host-side interface that the record names; empty: no record, or it does not say.
	Interface string
	// Ready is when the API server says that the pod's sandbox was ready, in whole seconds; zero: it does not say.
	Ready time.Time
	// Recorded says that a CNI record binds the address to the pod.
	Recorded bool
}

// Attestation is what the kernel says of a [Claim].
type Attestation int

const (
	// Unavailable means that there is nothing to compare: the claim stands, unproven.
	Unavailable Attestation = iota
	// Confirmed means that the address stands behind the claimant's interface.
	Confirmed
	// Refuted means that the address is not, or is no longer, the claimant's: the claim does not count.
	Refuted
)
