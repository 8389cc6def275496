package cli

import (
	"net/netip"
	"testing"
	"time"
)

func TestTheHostsOwnAddressesAreNoPods(t *testing.T) {
	var own ownAddrs
	for _, tt := range []struct {
		addr string
		want bool
	}{{"127.0.0.1", true}, {"127.0.0.2", false}, {"192.0.2.1", false}} {
		if got := own.contains(netip.MustParseAddr(tt.addr)); got != tt.want {
			t.Errorf("%s: %t, want %t", tt.addr, got, tt.want)
		}
	}
}

func TestTheHostsAddressesAreReadAnewWhenTheyAreOld(t *testing.T) {
	var own ownAddrs
	addr := netip.MustParseAddr("127.0.0.1")
	own.list.Store(&ownAddrList{read: time.Now().Add(-ownAddrsLife)})
	if !own.contains(addr) {
		t.Error("an old list is believed")
	}
	own.list.Store(&ownAddrList{read: time.Now().Add(time.Hour)})
	if own.contains(addr) {
		t.Error("a list is read anew for each request")
	}
}

func TestKnowingTheHostsAddressesAllocatesNothing(t *testing.T) {
	own := ownAddrs{}
	own.list.Store(&ownAddrList{read: time.Now().Add(time.Hour)})
	if n := testing.AllocsPerRun(100, func() { own.contains(netip.AddrFrom4([4]byte{127, 0, 0, 2})) }); n > 0 {
		t.Errorf("%v allocations for a request, want none", n)
	}
}
