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
	t.addNeighbour(pod, station{2, "aa"}, at(1))
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
		{"bridged, the forwarding entry aged out", bridged(), func(t *table) { t.dropForwarding(seat{2, "aa"}, 3) }, byAPI(2, 2), Confirmed},
		{"bridged, ARP takeover", bridged(), func(t *table) { t.addNeighbour(pod, station{2, "bb"}, at(5)) }, byAPI(2, 2), Refuted},
		{"bridged, ARP takeover after expiry", bridged(), func(t *table) { t.dropNeighbour(pod); t.addNeighbour(pod, station{2, "bb"}, at(5)) }, byAPI(2, 2), Refuted},
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
		{"bridged record, ARP takeover", bridged(), func(t *table) { t.addNeighbour(pod, station{2, "bb"}, at(5)) }, byRecord(2, "veth1"), Refuted},
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

func TestEndsAreBounded(t *testing.T) {
	table := newTable()
	addr := netip.MustParseAddr("2001:db8::")
	for i := range maxEnds + 10 {
		addr = addr.Next()
		table.end(addr, at(float64(i)))
	}
	if len(table.ends) > maxEnds {
		t.Errorf("%d ends are kept, want at most %d", len(table.ends), maxEnds)
	}
	if _, ok := table.ends[addr]; !ok {
		t.Error("the newest end was dropped")
	}
}

func TestConfirmingAllocatesNothing(t *testing.T) {
	table := routed()
	claim := Claim{Addr: pod, Ingress: 2, Interface: "veth1", Recorded: true}
	if n := testing.AllocsPerRun(100, func() { table.check(claim) }); n > 0 {
		t.Errorf("%v allocations, want none", n)
	}
}
