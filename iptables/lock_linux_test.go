package iptables_test

import (
	"errors"
	"net"
	"net/netip"
	"strconv"
	"syscall"
	"testing"

	"pod2role/e2e/testnet"
	"pod2role/iptables"
)

// dnatRule is the rule of kube2iam and Kiam; action is -A or -I.
func dnatRule(action, host string, port int) []string {
	return []string{
		"-t", "nat", action, "PREROUTING", "-p", "tcp", "-d", testnet.MetadataAddr, "--dport", "80",
		"-j", "DNAT", "--to-destination", net.JoinHostPort(host, strconv.Itoa(port)), "-i", "eni+",
	}
}

// Each of these would let a pod through to the real service if the redirect were all there is.
func TestTheLockHoldsWhereTheRedirectDoesNot(t *testing.T) {
	tests := []struct{ name, script string }{
		{"notrack", `table inet foreign { chain c { type filter hook prerouting priority raw; tcp dport 80 notrack; }; }`},
		{"notrack in front of everything", `table inet foreign { chain c { type filter hook prerouting priority -450; notrack; }; }`},
		{"flushed redirect", `flush chain inet pod2role proxy`},
		{"deleted redirect", `delete chain inet pod2role proxy`},
		{"NAT in front that binds to the same address", `table inet foreign { chain c { type nat hook prerouting priority -199;
			ip daddr 169.254.169.254 tcp dport 80 dnat ip to 169.254.169.254:80; ip6 daddr fd00:ec2::254 tcp dport 80 dnat ip6 to [fd00:ec2::254]:80; }; }`},
		{"NAT in front that goes to nobody", `table inet foreign { chain c { type nat hook prerouting priority -199;
			ip daddr 169.254.169.254 tcp dport 80 dnat ip to 10.0.0.10:9; ip6 daddr fd00:ec2::254 tcp dport 80 dnat ip6 to [fd00:10::10]:9; }; }`},
	}
	for _, topology := range testnet.Topologies() {
		for _, tt := range tests {
			t.Run(string(topology)+"/"+tt.name, func(t *testing.T) {
				r := newRig(t, topology, config())
				r.apply(t)
				r.nft(t, tt.script)
				for _, url := range urls() {
					wantRefused(t, r.Pods[0].Namespace, url)
				}
				r.wantUnseen(t)
			})
		}
	}
}

func TestAnAcceptInFrontChangesNothing(t *testing.T) {
	r := newRig(t, testnet.Bridge, config())
	r.apply(t)
	r.nft(t, `table inet foreign {
		chain n { type nat hook prerouting priority -199; accept; }
		chain f { type filter hook prerouting priority -199; accept; }
		chain g { type filter hook prerouting priority -95; accept; }
	}`)
	for _, url := range urls() {
		wantAnswer(t, r.Pods[0].Namespace, url, proxied)
	}
	r.nft(t, "flush chain inet pod2role proxy")
	for _, url := range urls() {
		wantRefused(t, r.Pods[0].Namespace, url)
	}
	r.wantUnseen(t)
}

// A service address that somebody points at the metadata service is no way around either.
func TestTheLockLooksAtThePacketAsNATHasLeftIt(t *testing.T) {
	r := newRig(t, testnet.Routed, config())
	r.apply(t)
	r.nft(t, `table ip foreign { chain c { type nat hook prerouting priority dstnat; ip daddr 10.96.0.77 tcp dport 80 dnat to 169.254.169.254:80; }; }`)
	wantRefused(t, r.Pods[0].Namespace, testnet.URL("10.96.0.77", 80, "/"))
	r.wantUnseen(t)
}

// Not on a bridge: there the kernel (br_netfilter) does not translate the reset back, and the pod hears nothing at all.
func TestTheLockHoldsWhereNATInFrontGoesToAnotherPort(t *testing.T) {
	r := newRig(t, testnet.Routed, config())
	r.apply(t)
	r.nft(t, `table inet foreign { chain c { type nat hook prerouting priority -199;
		ip daddr 169.254.169.254 tcp dport 80 dnat ip to 169.254.169.254:8080; ip6 daddr fd00:ec2::254 tcp dport 80 dnat ip6 to [fd00:ec2::254]:8080; }; }`)
	for _, url := range urls() {
		wantRefused(t, r.Pods[0].Namespace, url)
	}
	r.wantUnseen(t)
}

func TestTheLockHoldsOnEveryPortAndProtocol(t *testing.T) {
	r := newRig(t, testnet.Bridge, config())
	r.apply(t)
	p := r.Pods[0]
	for _, addr := range []string{testnet.MetadataAddr, testnet.MetadataAddr6} {
		for _, port := range []uint16{1, 8080, 443} {
			wantRefused(t, p.Namespace, testnet.URL(addr, port, "/"))
		}
		var c net.Conn
		if err := p.Do(func() (err error) { c, err = net.Dial("udp", net.JoinHostPort(addr, "53")); return err }); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		deadline(t, c)
		if _, err := c.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.EHOSTUNREACH) && !errors.Is(err, syscall.EACCES) {
			t.Errorf("UDP to %s: got %v, want it prohibited", addr, err)
		}
	}
	r.wantUnseen(t)
	if s := r.check(t); s.Locked == 0 {
		t.Errorf("the lock has counted nothing")
	}
}

func TestIPv6IsLockedWhereTheNodeHasNoSuchAddress(t *testing.T) {
	for _, topology := range testnet.Topologies() {
		t.Run(string(topology), func(t *testing.T) {
			c := config()
			c.NodeAddrs = []netip.Addr{netip.MustParseAddr(testnet.NodeAddr)}
			r := newRig(t, topology, c)
			r.apply(t)
			wantAnswer(t, r.Pods[0].Namespace, urls()[0], proxied)
			wantRefused(t, r.Pods[0].Namespace, urls()[1])
			r.wantUnseen(t)
			if s := r.check(t); !s.Complete || !contains(s.Warnings, testnet.MetadataAddr6) {
				t.Errorf("got complete %t with %q, want complete and a warning about IPv6", s.Complete, s.Warnings)
			}
		})
	}
}

func TestAConnectionThatWasThereBeforeIsReset(t *testing.T) {
	for _, addr := range []string{testnet.MetadataAddr, testnet.MetadataAddr6} {
		t.Run(addr, func(t *testing.T) {
			r := newRig(t, testnet.Routed, config())
			c, err := r.Pods[0].Dial(t.Context(), net.JoinHostPort(addr, "80"))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = c.Close() }()
			deadline(t, c)
			r.apply(t)
			if _, err := c.Write([]byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n")); err != nil {
				t.Fatal(err)
			}
			if n, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("got %d bytes, %v; want %v", n, err, syscall.ECONNRESET)
			}
		})
	}
}

func TestLeftOverRulesOfThePeersLose(t *testing.T) {
	for _, binary := range []string{"iptables-nft", "iptables-legacy"} {
		for _, when := range []string{"before", "after"} {
			t.Run(binary+" "+when, func(t *testing.T) {
				t.Setenv("XTABLES_LOCKFILE", t.TempDir()+"/lock")
				r := newRig(t, testnet.Routed, config())
				serve(t, r.Node, net.JoinHostPort(testnet.NodeAddr, strconv.Itoa(peerPort)), "the peer")
				insert := func() { r.Node.Run(t, binary, dnatRule("-I", testnet.NodeAddr, peerPort)...) }
				if when == "before" {
					insert()
					wantAnswer(t, r.Pods[0].Namespace, urls()[0], "the peer")
					r.apply(t)
				} else {
					r.apply(t)
					insert()
				}
				wantAnswer(t, r.Pods[0].Namespace, urls()[0], proxied)
				r.wantUnseen(t)

				s := r.check(t)
				if !s.Complete || !s.First {
					t.Errorf("got complete %t, first %t, %q; want both", s.Complete, s.First, s.Problems)
				}
				want := iptables.Rule{
					Table: "ip nat", Chain: "PREROUTING", Position: 1,
					Text: `iifname "eni*" ip daddr 169.254.169.254 tcp dport 80 counter [DNAT to 10.0.0.10:8182]`,
				}
				if binary == "iptables-legacy" {
					want.Table, want.Text = "legacy ip nat", "-d 169.254.169.254/32 -i eni+ -p tcp --dport 80 -j DNAT --to-destination 10.0.0.10:8182"
				}
				if len(s.Foreign) != 1 || s.Foreign[0] != want {
					t.Errorf("got %+v, want %+v", s.Foreign, want)
				}
			})
		}
	}
}
