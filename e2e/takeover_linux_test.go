package e2e_test

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"os"
	"testing"
	"time"

	"pod2role/e2e/testnet"
)

// On a bridge every pod can send what it likes. The one that answers for another's address must not get its role.
func TestWhoTakesOverAnAddressDoesNotGetTheRole(t *testing.T) {
	for _, tt := range []struct {
		name      string
		byMAC     bool
		noRecords bool
	}{
		// The thief's own ARP request for its gateway tells the node that the address is behind the thief's MAC address.
		{name: "by ARP"},
		{name: "by ARP, no records", noRecords: true},
		{name: "by MAC address", byMAC: true},
		{name: "by MAC address, no records", byMAC: true, noRecords: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := newNode(t, testnet.Bridge, options{noRecords: tt.noRecords})
			victim := n.pod(t, "shop", "victim", "shop-victim")
			thief := n.pod(t, "lab", "thief", "")
			// Without this the kernel believes a new MAC address only a second after it has learnt the last one.
			if err := n.Node.Do(func() error { return os.WriteFile("/proc/sys/net/ipv4/neigh/cni0/locktime", []byte("0"), 0) }); err != nil {
				t.Fatal(err)
			}
			n.ready(t, "--hold=500ms")
			victim.expectRole(t, "shop-victim")

			own := thief.mac(t)
			if tt.byMAC {
				thief.Run(t, "ip", "link", "set", "eth0", "address", victim.mac(t))
			}
			thief.Run(t, "ip", "address", "add", victim.Addr.String()+"/32", "dev", "eth0")
			thief.Run(t, "ip", "neighbour", "flush", "dev", "eth0")
			tries, leaks := 0, 0
			for range 5 {
				_, _ = victim.tryGet(t, listPath) // it may not get through
				a, err := thief.askFrom(t, victim.Addr, listPath+"shop-victim")
				if err == nil {
					tries++
				}
				if a.code == http.StatusOK {
					leaks++
				}
			}
			if leaks > 0 || tries == 0 {
				t.Errorf("the thief was answered %d times and got the victim's credentials %d times, want some and none", tries, leaks)
			}

			thief.Run(t, "ip", "address", "del", victim.Addr.String()+"/32", "dev", "eth0")
			thief.Run(t, "ip", "link", "set", "eth0", "address", own)
			want := http.StatusOK
			if tt.noRecords {
				want = http.StatusServiceUnavailable // nothing tells any more whose address it is
			}
			var last answer
			for deadline := time.Now().Add(patience); last.code != want && time.Now().Before(deadline); {
				victim.Run(t, "ip", "neighbour", "flush", "dev", "eth0")
				last, _ = victim.tryGet(t, listPath+"shop-victim")
			}
			if last.code != want {
				t.Errorf("the victim, having its address back, got %d %q, want %d", last.code, last.body, want)
			}
		})
	}
}

// tryGet asks the metadata service as get does, but for a second at most, and may fail.
func (p *pod) tryGet(t *testing.T, target string) (answer, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	return exchange(ctx, p.Namespace, metadata, http.MethodGet, target)
}

// mac is the pod's MAC address.
func (p *pod) mac(t *testing.T) string {
	t.Helper()
	var mac string
	if err := p.Do(func() error {
		link, err := net.InterfaceByName("eth0")
		if err == nil {
			mac = link.HardwareAddr.String()
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return mac
}

// askFrom asks the metadata service from an address that is not the pod's first.
func (p *pod) askFrom(t *testing.T, from netip.Addr, target string) (answer, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	var conn net.Conn
	if err := p.Do(func() (err error) {
		dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IP(from.AsSlice())}}
		conn, err = dialer.DialContext(ctx, "tcp", metadata)
		return err
	}); err != nil {
		return answer{}, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	return exchangeOn(conn, metadata, http.MethodGet, target)
}
