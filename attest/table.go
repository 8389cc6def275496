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

// maxEnds bounds how many ends are remembered, because pods can make the kernel learn addresses that are not theirs.
const maxEnds = 1 << 16

// link is one interface of this network namespace.
type link struct {
	name   string
	master int       // the bridge it is a port of; 0: none
	born   time.Time // zero: it was there before we were
}

// station is what the neighbour table says of an address.
type station struct {
	dev int
	mac string
}

// seat is where the forwarding table of a bridge is asked.
type seat struct {
	bridge int
	mac    string
}

// move is an address that went to another interface while the first was still there.
type move struct {
	from int // interface index
	at   time.Time
}

// table is what is known of the kernel's state. It has no lock and no clock of its own.
type table struct {
	links      map[int]link           // :: interface index -> link
	names      map[string]int         // :: name of an interface -> its index
	dead       map[string]time.Time   // :: name of an interface that was there -> when it went
	routes     map[netip.Addr]int     // :: address with a host route -> interface index
	neighbours map[netip.Addr]station // :: address -> neighbour
	forwarding map[seat]int           // :: MAC on a bridge -> port's interface index
	places     map[netip.Addr]int     // :: address -> interface index it was last seen behind
	ends       map[netip.Addr]time.Time
	moves      map[netip.Addr]move // :: address -> when it last went from one living interface to another
}

func newTable() *table {
	return &table{
		links: map[int]link{}, names: map[string]int{}, dead: map[string]time.Time{}, routes: map[netip.Addr]int{}, neighbours: map[netip.Addr]station{},
		forwarding: map[seat]int{}, places: map[netip.Addr]int{}, ends: map[netip.Addr]time.Time{}, moves: map[netip.Addr]move{},
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
	delete(t.names, l.name)
	if len(t.dead) < maxEnds {
		t.dead[l.name] = now
	}
	for addr, place := range t.places {
		if place == index {
			delete(t.places, addr)
			t.end(addr, now)
		}
	}
	for addr, m := range t.moves {
		if m.from == index { // it was going away, which was told later than the address' new place
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
	if place, ok := t.places[addr]; ok && place == index {
		delete(t.places, addr)
		t.end(addr, now)
	}
}

func (t *table) addNeighbour(addr netip.Addr, s station, now time.Time) {
	t.neighbours[addr] = s
	t.place(addr, now)
}

// dropNeighbour keeps the place: entries expire while their pod lives.
func (t *table) dropNeighbour(addr netip.Addr) { delete(t.neighbours, addr) }

func (t *table) addForwarding(s seat, port int, now time.Time) {
	t.forwarding[s] = port
	for addr, n := range t.neighbours {
		if n.dev == s.bridge && n.mac == s.mac {
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

// place looks up where the address is now. If that is known and differs from before, the address has moved.
func (t *table) place(addr netip.Addr, now time.Time) {
	index, ok := t.routes[addr]
	if !ok {
		n := t.neighbours[addr]
		if index, ok = t.forwarding[seat{n.dev, n.mac}]; !ok {
			return
		}
	}
	if old, ok := t.places[addr]; ok && old != index {
		t.end(addr, now)
		if len(t.moves) >= maxEnds {
			clear(t.moves)
		}
		t.moves[addr] = move{from: old, at: now}
	}
	if _, ok := t.links[index]; ok {
		t.places[addr] = index
	}
}

func (t *table) end(addr netip.Addr, now time.Time) {
	if _, ok := t.ends[addr]; !ok && len(t.ends) >= maxEnds {
		oldest := addr
		for a, at := range t.ends {
			if at.Before(now) {
				oldest, now = a, at
			}
		}
		delete(t.ends, oldest)
	}
	t.ends[addr] = now
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
	index, ok := t.places[c.Addr]
	if !c.Recorded {
		if end, ended := t.ends[c.Addr]; ended && c.Ready.Before(end) {
			return Refuted, fmt.Sprintf("the address lost its interface at %s, after the pod's sandbox was ready", end.UTC().Format(time.RFC3339))
		}
		if ok && t.links[index].born.After(c.Ready.Add(time.Second)) {
			return Refuted, fmt.Sprintf("its interface %s is younger than the pod's sandbox", t.links[index].name)
		}
	}
	if !ok {
		return Unavailable, "the kernel shows no interface behind the address"
	}
	if c.Ingress != 0 && c.Ingress != index && c.Ingress != t.links[index].master {
		return Refuted, fmt.Sprintf("the connection came in by %s, but the address is behind %s", t.name(c.Ingress), t.links[index].name)
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
	place, ok := t.places[c.Addr]
	if !ok {
		return Unavailable, "the kernel shows no interface behind the address"
	}
	if place != index {
		return Refuted, fmt.Sprintf("the address is behind %s, but the record says %s", t.name(place), c.Interface)
	}
	return Confirmed, "the address is behind the record's interface"
}

func (t *table) name(index int) string {
	if l, ok := t.links[index]; ok {
		return l.name
	}
	return fmt.Sprintf("interface %d", index)
}
