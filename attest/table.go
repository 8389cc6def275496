package attest

import (
	"fmt"
	"net/netip"
	"time"
)

// Result is what the kernel says of a claim.
type Result int

const (
	// Unavailable means that there is nothing to compare: the claim is neither confirmed nor refuted.
	Unavailable Result = iota
	// Confirmed means that the address stands behind the claimant's interface.
	Confirmed
	// Refuted means that the address is not, or is no longer, the claimant's.
	Refuted
)

// String implements fmt.Stringer; the values serve as metric labels.
func (r Result) String() string {
	switch r {
	case Confirmed:
		return "confirmed"
	case Refuted:
		return "refuted"
	case Unavailable:
	}
	return "unavailable"
}

const (
	// maxEnds bounds how many ends and moves are remembered, because pods can make the kernel learn addresses that are
	// not theirs.
	maxEnds = 1 << 16
	// maxBehind bounds for the same reason how many addresses are known behind one interface.
	maxBehind = 256
	// settle is how long before a connection was accepted its address must have stayed where it is: connections wait in
	// the listener's queue.
	settle = 2 * time.Second
)

// link is one interface of this network namespace.
type link struct {
	name   string
	master int       // the bridge it is a port of; 0: none
	born   time.Time // zero: it was there before we were
}

// seat is a MAC address on a link: what the neighbour table says of an address, and what the forwarding table of a
// bridge is asked for.
type seat struct {
	dev int // interface index, where it matters of a bridge
	mac string
}

// place is where an address was last seen.
type place struct {
	index int       // of the interface
	seat  seat      // by which it was found; zero: by a route
	since time.Time // when it was first seen there
}

// move is an address that went to another interface, or out of sight, while the first was still there.
type move struct {
	from int // interface index
	at   time.Time
}

// table is what is known of the kernel's state. It has no lock and no clock of its own.
type table struct {
	links      map[int]link         // :: interface index -> link
	names      map[string]int       // :: name of an interface -> its index
	dead       map[string]time.Time // :: name of an interface that was there -> when it went
	routes     map[netip.Addr]int   // :: address with a host route -> interface index
	neighbours map[netip.Addr]seat
	forwarding map[seat]int // :: MAC on a bridge -> port's interface index
	learning   map[int]bool // :: interface index of a bridge -> it learns where addresses are; some are told not to
	places     map[netip.Addr]place
	behind     map[int]int // :: interface index -> how many places are there
	ends       map[netip.Addr]time.Time
	moves      map[netip.Addr]move // :: address -> its last one

	forgotten time.Time // addresses without an end may have ended until then
	lost      time.Time // addresses may have moved unseen until then
	deaf      bool      // they may do so now
}

func newTable() *table {
	return &table{
		links: map[int]link{}, names: map[string]int{}, dead: map[string]time.Time{}, routes: map[netip.Addr]int{}, neighbours: map[netip.Addr]seat{},
		forwarding: map[seat]int{}, learning: map[int]bool{}, places: map[netip.Addr]place{}, behind: map[int]int{}, ends: map[netip.Addr]time.Time{}, moves: map[netip.Addr]move{},
	}
}

func (t *table) addLink(index int, l link) {
	if old, ok := t.links[index]; ok {
		l.born = old.born
		delete(t.names, old.name)
	}
	t.names[l.name] = index
	t.links[index] = l
	delete(t.dead, l.name)
}

// dropLink forgets an interface, and ends every address that stood behind it.
func (t *table) dropLink(index int, now time.Time) {
	l, ok := t.links[index]
	if !ok {
		return
	}
	delete(t.links, index)
	delete(t.learning, index)
	delete(t.names, l.name)
	if len(t.dead) < maxEnds {
		t.dead[l.name] = now
	}
	for addr, p := range t.places {
		if p.index == index {
			t.leave(addr, now)
		}
	}
	for addr, m := range t.moves {
		if m.from == index { // it was going away, and so was its pod
			delete(t.moves, addr)
		}
	}
	for s, port := range t.forwarding {
		if port == index {
			delete(t.forwarding, s)
		}
	}
}

func (t *table) addRoute(addr netip.Addr, index int, now time.Time) {
	t.routes[addr] = index
	t.place(addr, now)
}

// dropRoute ends the address: unlike a neighbour, a host route does not expire, somebody took it back.
func (t *table) dropRoute(addr netip.Addr, index int, now time.Time) {
	if t.routes[addr] != index {
		return // it was replaced already
	}
	delete(t.routes, addr)
	if p, ok := t.places[addr]; ok && p.index == index {
		t.leave(addr, now)
	}
}

func (t *table) addNeighbour(addr netip.Addr, s seat, now time.Time) {
	t.neighbours[addr] = s
	t.place(addr, now)
}

// dropNeighbour keeps the place: entries expire while their pod lives.
func (t *table) dropNeighbour(addr netip.Addr) { delete(t.neighbours, addr) }

func (t *table) addForwarding(s seat, port int, now time.Time) {
	t.forwarding[s] = port
	t.learning[s.dev] = true
	for addr, n := range t.neighbours {
		if n == s {
			t.place(addr, now)
		}
	}
}

// dropForwarding keeps the place, as dropNeighbour does.
func (t *table) dropForwarding(s seat, port int) {
	if t.forwarding[s] == port {
		delete(t.forwarding, s)
	}
}

// place looks up where the address is now. If that differs from before, the address has moved. Where a neighbour's MAC
// address has no port the address stays where it is if it was found there by the same one, whose entry has expired;
// behind another it is out of sight.
func (t *table) place(addr netip.Addr, now time.Time) {
	at := place{since: now}
	var known bool
	if at.index, known = t.routes[addr]; !known {
		at.seat = t.neighbours[addr]
		at.index, known = t.forwarding[at.seat]
	}
	old, had := t.places[addr]
	switch {
	case had && known && old.index == at.index:
		at.since = old.since
		t.places[addr] = at
		return
	case had && !known && old.seat == at.seat:
		return
	case had:
		t.leave(addr, now)
		t.move(addr, old.index, now)
	case known:
		if m, ok := t.moves[addr]; ok { // it comes back from out of sight
			t.move(addr, m.from, now)
		}
	}
	if _, ok := t.links[at.index]; known && ok && t.behind[at.index] < maxBehind {
		t.places[addr] = at
		t.behind[at.index]++
	}
}

// leave ends an address that has a place.
func (t *table) leave(addr netip.Addr, now time.Time) {
	index := t.places[addr].index
	delete(t.places, addr)
	if t.behind[index]--; t.behind[index] <= 0 {
		delete(t.behind, index)
	}
	t.end(addr, now)
}

func (t *table) end(addr netip.Addr, now time.Time) {
	if len(t.ends) >= maxEnds {
		clear(t.ends)
		t.forgotten = now
	}
	t.ends[addr] = now
}

// lastEnd returns when the address last ended, at the latest; a zero time: it never has.
func (t *table) lastEnd(addr netip.Addr) time.Time {
	if end, ok := t.ends[addr]; ok {
		return end
	}
	if p, ok := t.places[addr]; ok && p.since.Before(t.forgotten) {
		return p.since
	}
	return t.forgotten
}

func (t *table) move(addr netip.Addr, from int, now time.Time) {
	if len(t.moves) >= maxEnds {
		clear(t.moves)
		t.lost = now
	}
	t.moves[addr] = move{from: from, at: now}
}

func (t *table) movedSince(addr netip.Addr, accepted time.Time) bool {
	accepted = accepted.Add(-settle)
	if m, ok := t.moves[addr]; ok && m.at.After(accepted) {
		return true
	}
	p, ok := t.places[addr]
	bridged := ok && p.seat != (seat{}) // pods cannot change routes
	return bridged && (t.deaf || t.lost.After(accepted))
}

// Claim is what a pod, or the record of one, says of its address.
type Claim struct {
	Addr netip.Addr
	// Ingress is the index of the interface that the connection came in by; 0: not known.
	Ingress int
	// Interface is the host-side interface that the CNI's record names; empty: no record, or it does not say.
	Interface string
	// Ready is when the API server says that the pod's sandbox was ready, in whole seconds. It is asked only where
	// there is no record, since a record is neither late nor stale.
	Ready time.Time
	// Recorded says that a CNI record binds the address to the pod.
	Recorded bool
}

// check judges a claim and says why, in half a sentence.
func (t *table) check(c Claim) (Result, string) {
	if c.Interface != "" {
		return t.checkRecord(c)
	}
	p, ok := t.places[c.Addr]
	l := t.links[p.index]
	if !c.Recorded {
		if end := t.lastEnd(c.Addr); c.Ready.Before(end) {
			return Refuted, fmt.Sprintf("the address lost its interface at %s, after the pod's sandbox was ready", end.UTC().Format(time.RFC3339))
		}
		if ok && l.born.After(c.Ready.Add(time.Second)) {
			return Refuted, fmt.Sprintf("its interface %s is younger than the pod's sandbox", l.name)
		}
	}
	if t.outOfSight(c) {
		return Refuted, "the bridge does not show behind which port the address is"
	}
	if !ok {
		return Unavailable, "the kernel shows no interface behind the address"
	}
	if c.Ingress != 0 && c.Ingress != p.index && c.Ingress != l.master {
		return Refuted, fmt.Sprintf("the connection came in by %s, but the address is behind %s", t.name(c.Ingress), l.name)
	}
	return Confirmed, "the address is behind the interface it was last seen behind"
}

// checkRecord compares the interface that the record names with the one that the connection came in by and, on a
// bridge, where that is the bridge, with the port that the bridge has learnt.
func (t *table) checkRecord(c Claim) (Result, string) {
	index, found := t.names[c.Interface]
	if !found {
		if _, dead := t.dead[c.Interface]; dead {
			return Refuted, fmt.Sprintf("the record's interface %s is gone", c.Interface)
		}
		return Unavailable, "the record's interface is not in this network namespace"
	}
	master := t.links[index].master
	if c.Ingress != 0 && c.Ingress != index && c.Ingress != master {
		return Refuted, fmt.Sprintf("the connection came in by %s, but the record says %s", t.name(c.Ingress), c.Interface)
	}
	if c.Ingress == index {
		return Confirmed, "the connection came in by the record's interface"
	}
	if t.outOfSight(c) {
		return Refuted, "the bridge does not show behind which port the address is"
	}
	p, ok := t.places[c.Addr]
	if !ok {
		return Unavailable, "the kernel shows no interface behind the address"
	}
	if p.index != index {
		return Refuted, fmt.Sprintf("the address is behind %s, but the record says %s", t.name(p.index), c.Interface)
	}
	return Confirmed, "the address is behind the record's interface"
}

// outOfSight says whether a bridge has no port for the address' MAC address. A pod that has just sent something has one;
// without it the bridge sends what is meant for the address to all of its ports. Where it is not known by which
// interface a connection came in, or whether there is one, an entry may also have expired.
func (t *table) outOfSight(c Claim) bool {
	if _, routed := t.routes[c.Addr]; routed {
		return false
	}
	n, known := t.neighbours[c.Addr]
	_, found := t.forwarding[n]
	if !known || found || !t.learning[n.dev] {
		return false
	}
	_, placed := t.places[c.Addr]
	return c.Ingress == n.dev || c.Ingress == 0 && !placed
}

func (t *table) name(index int) string {
	if l, ok := t.links[index]; ok {
		return l.name
	}
	return fmt.Sprintf("interface %d", index)
}
