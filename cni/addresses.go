package cni

import (
	"net/netip"
	"slices"
	"time"
)

// order is the place of a record in time: when its file was written, and in which look at the disk it was first seen.
// Files that one look finds together share the latter.
type order struct {
	given time.Time
	seen  uint64
}

// after says that a is certainly later than b. The file's time alone would not do: the node's clock may have been set
// back between the two.
func (a order) after(b order) bool {
	if a.given.Equal(b.given) {
		return a.seen > b.seen
	}
	return a.given.After(b.given) && a.seen >= b.seen
}

// latest is not before either; nothing is after it that is not after both.
func latest(a, b order) order {
	if b.given.After(a.given) {
		a.given = b.given
	}
	a.seen = max(a.seen, b.seen)
	return a
}

// claim is one file's word that an address was given to a pod, or to somebody else.
type claim struct {
	addr   netip.Addr
	pod    string  // the pod's UID, "": somebody else
	record *Record // with the HostInterface of this address; nil once the claim is void
	order  order
}

// holding is what is known of one address.
type holding struct {
	files  int   // files on disk that name the address
	newest order // of all claims that were ever made while there were files
	// standing are the claims of the holder, oldest first. There are several if the holder has the address by several
	// networks (Multus and the plugin it delegates to each make a record), and none if the holder's record is gone or
	// if it cannot be told who was last.
	standing []*claim
}

// addresses is the index proper. It is not safe for concurrent use.
// :: address -> holding
type addresses map[netip.Addr]*holding

// lookup returns the last claim on an address, nil if there is none that stands.
func (a addresses) lookup(addr netip.Addr) *claim {
	if h := a[addr]; h != nil && len(h.standing) > 0 {
		return h.standing[len(h.standing)-1]
	}
	return nil
}

// add makes a claim. A claim that loses, now or later, is void for good: it does not come back when the winner goes,
// because the winner was given the address only after the loser had lost it. If the winner is no pod, add returns the pod
// that has lost the address.
func (a addresses) add(c *claim) (lost string) {
	h := a[c.addr]
	if h == nil {
		h = &holding{newest: c.order}
		a[c.addr] = h
	}
	h.files++
	if c.pod == "" && len(h.standing) > 0 && c.order.after(h.newest) {
		lost = h.standing[0].pod
	}
	switch {
	case h.files == 1:
		h.standing = []*claim{c}
	case len(h.standing) > 0 && c.pod != "" && c.pod == h.standing[0].pod:
		h.standing = append(h.standing, c)
		slices.SortStableFunc(h.standing, func(x, y *claim) int { return x.order.given.Compare(y.order.given) })
	case c.order.after(h.newest):
		h.void()
		h.standing = []*claim{c}
	case h.newest.after(c.order):
		c.record = nil
	default:
		h.void()
		c.record = nil
	}
	h.newest = latest(h.newest, c.order)
	return lost
}

// remove withdraws a claim whose file is gone or has changed. If it was all that stood for the address, remove returns
// its pod.
func (a addresses) remove(c *claim) (lost string) {
	h := a[c.addr]
	stood := len(h.standing)
	h.standing = slices.DeleteFunc(h.standing, func(x *claim) bool { return x == c })
	if stood > len(h.standing) && len(h.standing) == 0 {
		lost = c.pod
	}
	if h.files--; h.files == 0 {
		delete(a, c.addr)
	}
	return lost
}

func (h *holding) void() {
	for _, c := range h.standing {
		c.record = nil
	}
	h.standing = nil
}
