package cni

import (
	"net/netip"
	"time"
)

// maxTaken bounds how many addresses are remembered that were taken back, some 150 bytes each. A node has a few hundred
// IPv4 addresses to give, but may give every pod an IPv6 address that none had before. The oldest is forgotten first.
const maxTaken = 1 << 14

// takenBack is who had an address by the last record that stood for it, and when that was seen to be gone.
type takenBack struct {
	pod string
	at  time.Time
}

// takings are the addresses that were taken back, and not given to another pod's record since.
// :: address -> who had it
type takings map[netip.Addr]takenBack

func (t takings) note(addr netip.Addr, pod string, now time.Time) {
	if _, known := t[addr]; !known && len(t) >= maxTaken {
		oldest, since := addr, now
		for a, b := range t {
			if b.at.Before(since) {
				oldest, since = a, b.at
			}
		}
		delete(t, oldest)
	}
	t[addr] = takenBack{pod, now}
}

// TakenBack tells of an address for which no record stands which pod had it by the last one that did, and when that
// was seen to be gone. A zero time: none is remembered.
//
// What others still say of the address from before that moment is out of date. It is remembered only where a directory
// was seen without the record, or with one of no pod in its place: if the directory itself cannot be read any more,
// nothing is known of its addresses. An Index remembers nothing of an earlier one.
func (x *Index) TakenBack(addr netip.Addr) (pod string, at time.Time) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	b := x.taken[addr.Unmap()]
	return b.pod, b.at
}
