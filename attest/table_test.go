package attest

import (
	"net/netip"
	"testing"
	"time"
)

var (
	pod   = netip.MustParseAddr("10.0.0.7")
	start = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
)

func at(seconds float64) time.Time { return start.Add(time.Duration(seconds * float64(time.Second))) }

// routed is a node whose pods have a veth each, with a host route: veth1 (2) of the address, veth2 (3) of nobody.
func routed() *table {
	t := newTable()
	t.addLink(2, link{name: "veth1", born: at(1)})
	t.addLink(3, link{name: "veth2", born: at(1)})
	t.addRoute(pod, 2, at(1))
	return t
}

// bridged is a node whose pods hang on cni0 (2): veth1 (3) has the address, veth2 (4) is another pod's.
func bridged() *table {
	t := newTable()
	t.addLink(2, link{name: "cni0"})
	t.addLink(3, link{name: "veth1", master: 2, born: at(1)})
	t.addLink(4, link{name: "veth2", master: 2, born: at(1)})
	t.addForwarding(seat{2, "aa"}, 3, at(1))
	t.addForwarding(seat{2, "bb"}, 4, at(1))
	t.addNeighbour(pod, seat{2, "aa"}, at(1))
	return t
}

func TestClaims(t *testing.T) {
	byRecord := func(ingress int, name string) Claim {
		return Claim{Addr: pod, Ingress: ingress, Interface: name, Recorded: true}
	}
	byAPI := func(ingress int, ready float64) Claim { return Claim{Addr: pod, Ingress: ingress, Ready: at(ready)} }
	for _, tt := range []struct {
		name   string
		table  *table
		change func(*table)
		claim  Claim
		want   Result
	}{
		{"routed, by its own veth", routed(), nil, byAPI(2, 2), Confirmed},
		{"routed, by another pod's veth", routed(), nil, byAPI(3, 2), Refuted},
		{"routed, ingress not known", routed(), nil, byAPI(0, 2), Confirmed},
		{"routed, a claim older than the veth", routed(), func(t *table) {
			t.dropLink(2, at(5))
			t.addLink(9, link{name: "veth9", born: at(6)})
			t.addRoute(pod, 9, at(6))
		}, byAPI(9, 3), Refuted},
		{"routed, a claim younger than the veth", routed(), func(t *table) {
			t.dropLink(2, at(5))
			t.addLink(9, link{name: "veth9", born: at(6)})
			t.addRoute(pod, 9, at(6))
		}, byAPI(9, 7), Confirmed},
		{"routed, a claim of the second in which the address ended", routed(), func(t *table) { t.dropLink(2, at(5.5)) }, byAPI(0, 5), Refuted},
		{"routed, the veth is gone and nothing came", routed(), func(t *table) { t.dropLink(2, at(5)) }, byAPI(0, 6), Unavailable},
		{"routed, the route was taken back", routed(), func(t *table) { t.dropRoute(pod, 2, at(5)) }, byAPI(2, 2), Refuted},
		{"routed, the route moved before it was taken back", routed(), func(t *table) { t.addRoute(pod, 3, at(5)); t.dropRoute(pod, 2, at(5)) }, byAPI(3, 2), Refuted},
		{"routed, a veth born after the claim though no end was seen", newTable(), func(t *table) { t.addLink(2, link{name: "veth1", born: at(9)}); t.addRoute(pod, 2, at(9)) }, byAPI(2, 3), Refuted},
		{"bridged, in by the bridge", bridged(), nil, byAPI(2, 2), Confirmed},
		{"bridged, in by another bridge", bridged(), nil, byAPI(7, 2), Refuted},
		{"bridged, the neighbour entry expired", bridged(), func(t *table) { t.dropNeighbour(pod) }, byAPI(2, 2), Confirmed},
		{"bridged, the forwarding entry aged out, asked without a connection", bridged(), func(t *table) { t.dropForwarding(seat{2, "aa"}, 3) }, byAPI(0, 2), Confirmed},
		{"bridged, the bridge would flood the answer", bridged(), func(t *table) { t.dropForwarding(seat{2, "aa"}, 3) }, byAPI(2, 2), Refuted},
		{"bridged, the forwarding entry aged out and came back", bridged(), func(t *table) {
			t.dropForwarding(seat{2, "aa"}, 3)
			t.addNeighbour(pod, seat{2, "aa"}, at(4))
			t.addForwarding(seat{2, "aa"}, 3, at(5))
		}, byAPI(2, 2), Confirmed},
		{"bridged, on a bridge that does not learn", newTable(), func(t *table) {
			t.addLink(2, link{name: "cni0"})
			t.addNeighbour(pod, seat{2, "aa"}, at(1))
		}, byAPI(2, 2), Unavailable},
		{"bridged, taken over by a MAC without a port", bridged(), func(t *table) { t.addNeighbour(pod, seat{2, "cc"}, at(5)) }, byAPI(0, 2), Refuted},
		{"bridged, taken over by a MAC without a port, and given back", bridged(), func(t *table) {
			t.addNeighbour(pod, seat{2, "cc"}, at(5))
			t.addNeighbour(pod, seat{2, "aa"}, at(5))
		}, byAPI(2, 2), Refuted},
		{"bridged, given anew after a takeover", bridged(), func(t *table) {
			t.addNeighbour(pod, seat{2, "bb"}, at(5))
			t.addNeighbour(pod, seat{2, "aa"}, at(6))
		}, byAPI(2, 7), Confirmed},
		{"the address may have ended in what was forgotten", newTable(), func(t *table) { t.forgotten = at(5) }, byAPI(0, 4), Refuted},
		{"the address has been there since before what was forgotten", routed(), func(t *table) { t.forgotten = at(5) }, byAPI(2, 2), Confirmed},
		{"bridged, ARP takeover", bridged(), func(t *table) { t.addNeighbour(pod, seat{2, "bb"}, at(5)) }, byAPI(2, 2), Refuted},
		{"bridged, ARP takeover after expiry", bridged(), func(t *table) { t.dropNeighbour(pod); t.addNeighbour(pod, seat{2, "bb"}, at(5)) }, byAPI(2, 2), Refuted},
		{"bridged, the MAC moved to another port", bridged(), func(t *table) { t.addForwarding(seat{2, "aa"}, 4, at(5)) }, byAPI(2, 2), Refuted},
		{"bridged, the port is gone", bridged(), func(t *table) { t.dropLink(3, at(5)) }, byAPI(2, 2), Refuted},
		{"nothing is known of the address", newTable(), nil, byAPI(2, 2), Unavailable},

		{"routed record, by its veth", routed(), nil, byRecord(2, "veth1"), Confirmed},
		{"routed record, by another veth", routed(), nil, byRecord(3, "veth1"), Refuted},
		{"routed record, its veth is gone", routed(), func(t *table) { t.dropLink(2, at(5)) }, byRecord(3, "veth1"), Refuted},
		{"a record whose interface never was here", routed(), nil, byRecord(3, "eth0"), Unavailable},
		{"a record without an interface", routed(), nil, byRecord(2, ""), Confirmed},
		{"a record without an interface, by another veth", routed(), nil, byRecord(3, ""), Refuted},
		{"a young record is not judged by an old end", routed(), func(t *table) {
			t.dropLink(2, at(5))
			t.addLink(9, link{name: "veth9", born: at(6)})
			t.addRoute(pod, 9, at(6))
		}, byRecord(9, ""), Confirmed},
		{"bridged record, in by the bridge", bridged(), nil, byRecord(2, "veth1"), Confirmed},
		{"bridged record, ARP takeover", bridged(), func(t *table) { t.addNeighbour(pod, seat{2, "bb"}, at(5)) }, byRecord(2, "veth1"), Refuted},
		{"bridged record, taken over by a MAC without a port", bridged(), func(t *table) { t.addNeighbour(pod, seat{2, "cc"}, at(5)) }, byRecord(2, "veth1"), Refuted},
		{"bridged record, taken over by a MAC without a port, ingress not known", bridged(), func(t *table) { t.addNeighbour(pod, seat{2, "cc"}, at(5)) }, byRecord(0, "veth1"), Refuted},
		{"bridged record, given back", bridged(), func(t *table) {
			t.addNeighbour(pod, seat{2, "cc"}, at(5))
			t.addNeighbour(pod, seat{2, "aa"}, at(5))
		}, byRecord(2, "veth1"), Confirmed},
		{"bridged record, the bridge would flood the answer", bridged(), func(t *table) { t.dropForwarding(seat{2, "aa"}, 3) }, byRecord(2, "veth1"), Refuted},
		{"bridged record, by another bridge", bridged(), nil, byRecord(7, "veth1"), Refuted},
		{"bridged record, neighbour not seen", bridged(), func(t *table) { delete(t.places, pod) }, byRecord(2, "veth1"), Unavailable},
		{"an interface that changed its name", routed(), func(t *table) { t.addLink(2, link{name: "eni1"}) }, byRecord(2, "eni1"), Confirmed},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.change != nil {
				tt.change(tt.table)
			}
			if got, why := tt.table.check(tt.claim); got != tt.want {
				t.Errorf("got %v (%s), want %v", got, why, tt.want)
			}
		})
	}
}

func TestAnAddressThatMovesBetweenLivingInterfaces(t *testing.T) {
	takenOver := func(t *table) { t.addNeighbour(pod, seat{2, "bb"}, at(10)) }
	for _, tt := range []struct {
		name     string
		table    *table
		change   func(*table)
		accepted float64
		want     bool
	}{
		{"stays", bridged(), func(*table) {}, 10, false},
		{"by ARP, after the connection", bridged(), takenOver, 9, true},
		{"by ARP, shortly before the connection", bridged(), takenOver, 11, true},
		{"by ARP, long before the connection", bridged(), takenOver, 13, false},
		{"by MAC address", bridged(), func(t *table) { t.addForwarding(seat{2, "aa"}, 4, at(10)) }, 9, true},
		{"by ARP after its entry expired", bridged(), func(t *table) { t.dropNeighbour(pod); takenOver(t) }, 9, true},
		{"to a MAC without a port", bridged(), func(t *table) { t.addNeighbour(pod, seat{2, "cc"}, at(10)) }, 9, true},
		{"there and back", bridged(), func(t *table) { takenOver(t); t.addNeighbour(pod, seat{2, "aa"}, at(10)) }, 9, true},
		{"out of sight and back, before the connection was made", bridged(), func(t *table) {
			t.addNeighbour(pod, seat{2, "cc"}, at(10))
			t.addNeighbour(pod, seat{2, "aa"}, at(20))
		}, 19, true},
		{"to another pod, after the first one's end", bridged(), func(t *table) { t.dropLink(3, at(10)); takenOver(t) }, 9, false},
		{"to another pod, while the first one's end is underway", bridged(), func(t *table) { takenOver(t); t.dropLink(3, at(10)) }, 9, false},
		{"its forwarding entry expires", bridged(), func(t *table) { t.dropForwarding(seat{2, "aa"}, 3); t.addNeighbour(pod, seat{2, "aa"}, at(10)) }, 9, false},
		{"perhaps, while notifications were lost", bridged(), func(t *table) { t.lost = at(10) }, 9, true},
		{"perhaps, while notifications are being lost", bridged(), func(t *table) { t.deaf = true }, 9, true},
		{"not, though notifications were lost: it is routed", routed(), func(t *table) { t.lost, t.deaf = at(10), true }, 9, false},
		{"by a route", routed(), func(t *table) { t.addRoute(pod, 3, at(10)) }, 9, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.change(tt.table)
			if got := tt.table.movedSince(pod, at(tt.accepted)); got != tt.want {
				t.Errorf("moved: %v, want %v", got, tt.want)
			}
		})
	}
}

// No pod can make the table forget what is against it.
func TestWhatIsRememberedIsBounded(t *testing.T) {
	table := bridged()
	addr := netip.MustParseAddr("2001:db8::")
	table.addNeighbour(pod, seat{2, "bb"}, at(5))
	for range maxEnds + 10 {
		addr = addr.Next()
		table.addNeighbour(addr, seat{2, "aa"}, at(6))
		table.addNeighbour(addr, seat{2, "bb"}, at(7))
		table.dropNeighbour(addr)
	}
	if len(table.ends) > maxEnds || len(table.moves) > maxEnds || len(table.places) > 2*maxBehind {
		t.Errorf("%d ends, %d moves and %d places are kept", len(table.ends), len(table.moves), len(table.places))
	}
	for range maxEnds {
		addr = addr.Next()
		table.end(addr, at(8))
		table.move(addr, 3, at(8))
	}
	table.dropLink(4, at(9))
	if got, why := table.check(Claim{Addr: pod, Ready: at(4)}); got != Refuted {
		t.Errorf("a claim from before the address' end is %v (%s), want %v", got, why, Refuted)
	}
	table = bridged()
	for range maxEnds + 1 {
		addr = addr.Next()
		table.move(addr, 3, at(8))
	}
	if !table.movedSince(pod, at(7)) {
		t.Error("an address whose move may have been forgotten has not moved")
	}
}

func TestTheAddressesBehindOneInterfaceDoNotKeepOthersOut(t *testing.T) {
	table := bridged()
	addr := netip.MustParseAddr("2001:db8::")
	for range 2 * maxBehind {
		addr = addr.Next()
		table.addNeighbour(addr, seat{2, "bb"}, at(5))
	}
	if got, _ := table.check(Claim{Addr: addr, Ingress: 2, Ready: at(6)}); got != Unavailable {
		t.Errorf("the last of too many addresses is %v, want %v", got, Unavailable)
	}
	table.addNeighbour(pod, seat{2, "bb"}, at(6)) // there is no room for it
	if got, why := table.check(Claim{Addr: pod, Ingress: 2, Ready: at(5)}); got != Refuted {
		t.Errorf("an address that was taken over is %v (%s), want %v", got, why, Refuted)
	}
	table.dropLink(4, at(7))
	if len(table.behind) != 0 || len(table.places) != 0 {
		t.Errorf("left behind: %v, %v", table.behind, table.places)
	}
}

func TestConfirmingAllocatesNothing(t *testing.T) {
	table := routed()
	claim := Claim{Addr: pod, Ingress: 2, Interface: "veth1", Recorded: true}
	if n := testing.AllocsPerRun(100, func() { table.check(claim); table.movedSince(pod, at(5)) }); n > 0 {
		t.Errorf("%v allocations, want none", n)
	}
}

func BenchmarkWarm(b *testing.B) {
	a, err := New(Config{})
	if err != nil {
		b.Fatal(err)
	}
	a.table = bridged()
	claim, accepted := Claim{Addr: pod, Ingress: 2, Interface: "veth1", Recorded: true}, at(9)
	b.Run("Check", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			a.Check(claim)
		}
	})
	b.Run("MovedSince", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			a.MovedSince(pod, accepted)
		}
	})
}
