package iptables_test

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"pod2role/e2e/testnet"
	"pod2role/iptables"
)

// A backEnd is one to try, with the command of the kind of iptables that its neighbours on the node use.
type backEnd struct{ name, iptables string }

func backEnds() []backEnd {
	return []backEnd{{"nftables", "iptables-nft"}, {"iptables-nft", "iptables-nft"}, {"iptables-legacy", "iptables-legacy"}}
}

// eachBackEnd runs f for each back end, on a node of its own.
func eachBackEnd(t *testing.T, f func(t *testing.T, b backEnd, c iptables.Config)) {
	t.Helper()
	for _, b := range backEnds() {
		t.Run(b.name, func(t *testing.T) {
			t.Setenv("XTABLES_LOCKFILE", t.TempDir()+"/lock")
			c := config()
			c.Backend = b.name
			if b.name == "iptables-legacy" { // of whose changes nobody tells
				c.Resync = 100 * time.Millisecond
			}
			f(t, b, c)
		})
	}
}

func TestEachBackEndHoldsTheRedirectAndTheLockAmongOthersRules(t *testing.T) {
	const refused = "" // what a pod gets by way of the lock
	dnat := func(action string) func(t *testing.T, r *rig, b backEnd) {
		return func(t *testing.T, r *rig, b backEnd) {
			r.Node.Run(t, b.iptables, dnatRule(action, testnet.NodeAddr, peerPort)...)
		}
	}
	tests := []struct {
		name          string
		before, after func(t *testing.T, r *rig, b backEnd)
		want4, want6  string
		notFirst      bool
	}{
		{name: "nothing else", want4: proxied, want6: proxied},
		{name: "a left-over rule of kube2iam", before: dnat("-A"), want4: proxied, want6: proxied},
		{name: "a live Kiam", before: func(t *testing.T, r *rig, b backEnd) {
			dnat("-A")(t, r, b)
			serve(t, r.Node, net.JoinHostPort(testnet.NodeAddr, strconv.Itoa(peerPort)), "the peer")
			wantAnswer(t, r.Pods[0].Namespace, urls()[0], "the peer")
		}, want4: proxied, want6: proxied},
		{name: "a rule of Kiam that comes later", after: dnat("-A"), want4: proxied, want6: proxied},
		{name: "ten rules about other things", before: func(t *testing.T, r *rig, b backEnd) {
			for i := range 10 {
				r.Node.Run(t, b.iptables, "-t", "nat", "-A", "PREROUTING", "-p", "tcp", "-d", fmt.Sprintf("10.96.0.%d", i+1), "-j", "DNAT", "--to-destination", "10.244.0.99:80")
				r.Node.Run(t, b.iptables, "-A", "FORWARD", "-d", fmt.Sprintf("10.96.0.%d", i+1), "-j", "ACCEPT")
			}
		}, want4: proxied, want6: proxied},
		{name: "notrack", after: func(t *testing.T, r *rig, b backEnd) {
			r.Node.Run(t, b.iptables, "-t", "raw", "-A", "PREROUTING", "-p", "tcp", "--dport", "80", "-j", "CT", "--notrack")
			r.Node.Run(t, "ip6"+strings.TrimPrefix(b.iptables, "ip"), "-t", "raw", "-A", "PREROUTING", "-p", "tcp", "--dport", "80", "-j", "CT", "--notrack")
		}, want4: refused, want6: refused},
		{name: "notrack of the metadata address", after: func(t *testing.T, r *rig, b backEnd) {
			r.Node.Run(t, b.iptables, "-t", "raw", "-A", "PREROUTING", "-d", testnet.MetadataAddr, "-j", "CT", "--notrack")
		}, want4: refused, want6: proxied, notFirst: true},
		{name: "NAT in front", after: func(t *testing.T, r *rig, _ backEnd) {
			r.nft(t, `table inet foreign { chain c { type nat hook prerouting priority -199;
				ip daddr 169.254.169.254 tcp dport 80 dnat ip to 169.254.169.254:8080; ip6 daddr fd00:ec2::254 tcp dport 80 dnat ip6 to [fd00:ec2::254]:8080; }; }`)
		}, want4: refused, want6: refused, notFirst: true},
	}
	eachBackEnd(t, func(t *testing.T, b backEnd, c iptables.Config) {
		for _, tt := range tests {
			t.Run(tt.name, func(t *testing.T) {
				r := newRig(t, testnet.Routed, c)
				if tt.before != nil {
					tt.before(t, r, b)
				}
				r.apply(t)
				if tt.after != nil {
					tt.after(t, r, b)
				}
				for i, want := range []string{tt.want4, tt.want6} {
					for _, p := range r.Pods {
						if want == refused {
							wantRefused(t, p.Namespace, urls()[i])
						} else {
							wantAnswer(t, p.Namespace, urls()[i], want)
						}
					}
				}
				for _, addr := range []string{testnet.MetadataAddr, testnet.MetadataAddr6} {
					wantRefused(t, r.Pods[0].Namespace, testnet.URL(addr, 8080, "/"))
				}
				r.wantUnseen(t)
				if s := r.check(t); !s.Complete || s.First == tt.notFirst || s.Backend != b.name {
					t.Errorf("got %s, complete %t, first %t with %q and %v; want %s, complete, first %t", s.Backend, s.Complete, s.First, s.Problems, s.Foreign, b.name, !tt.notFirst)
				}
			})
		}
	})
}

func TestEachBackEndPutsBackWhatOthersChange(t *testing.T) {
	tests := []struct {
		name   string
		change func(t *testing.T, r *rig, b backEnd)
	}{
		{"a flush of everything", func(t *testing.T, r *rig, b backEnd) {
			if b.name == "nftables" {
				r.nft(t, "flush ruleset")
				return
			}
			for _, ip := range []string{"ip", "ip6"} {
				for _, table := range []string{"nat", "filter", "security"} {
					r.Node.Run(t, ip+strings.TrimPrefix(b.iptables, "ip"), "-t", table, "-F")
					r.Node.Run(t, ip+strings.TrimPrefix(b.iptables, "ip"), "-t", table, "-X")
				}
			}
		}},
		{"the lock emptied", func(t *testing.T, r *rig, b backEnd) {
			if b.name == "nftables" {
				r.nft(t, "flush chain inet pod2role lock")
				return
			}
			r.Node.Run(t, b.iptables, "-F", "POD2ROLE-LOCK")
		}},
		{"a rule in front of ours", func(t *testing.T, r *rig, b backEnd) {
			if b.name == "nftables" {
				r.nft(t, "insert rule inet pod2role proxy accept")
				return
			}
			r.Node.Run(t, b.iptables, dnatRule("-I", testnet.NodeAddr, peerPort)...)
		}},
		{"a rule in front of the lock", func(t *testing.T, r *rig, b backEnd) {
			if b.name == "nftables" {
				r.nft(t, "insert rule inet pod2role lock accept")
				return
			}
			r.Node.Run(t, b.iptables, "-I", "FORWARD", "-j", "ACCEPT")
		}},
		{"one of our rules deleted", func(t *testing.T, r *rig, b backEnd) {
			if b.name == "nftables" {
				r.nft(t, "flush chain inet pod2role proxy")
				return
			}
			r.Node.Run(t, b.iptables, "-t", "nat", "-D", "PREROUTING", "1")
		}},
		{"one of our rules changed for IPv6", func(t *testing.T, r *rig, b backEnd) {
			if b.name == "nftables" {
				r.nft(t, "flush chain inet pod2role lock")
				return
			}
			r.Node.Run(t, "ip6"+strings.TrimPrefix(b.iptables, "ip"), "-t", "nat", "-R", "POD2ROLE-REDIRECT", "2", "-j", "RETURN")
		}},
	}
	eachBackEnd(t, func(t *testing.T, b backEnd, c iptables.Config) {
		for _, tt := range tests {
			t.Run(tt.name, func(t *testing.T) {
				c := c
				log, warned := warnings()
				c.Log = log
				r := newRig(t, testnet.Bridge, c)
				r.apply(t)
				stop := r.run(t)
				for range 2 {
					tt.change(t, r, b)
					next(t, warned)
					r.whole(t)
					for _, url := range urls() {
						wantAnswer(t, r.Pods[0].Namespace, url, proxied)
					}
				}
				stop()
				r.wantUnseen(t)
			})
		}
	})
}

// whole waits until the rules are complete: a change that is several steps may be repaired in several.
func (r *rig) whole(t *testing.T) {
	t.Helper()
	var s iptables.Status
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); {
		if s = r.check(t); s.Complete {
			return
		}
	}
	t.Fatalf("got %q, want a complete rule set", s.Problems)
}

// The lock of iptables answers from filter, where others may accept in front of it; what they let through is dropped.
func TestAnAcceptInFrontOfTheLockOfIptablesLetsNothingThrough(t *testing.T) {
	eachBackEnd(t, func(t *testing.T, b backEnd, c iptables.Config) {
		r := newRig(t, testnet.Routed, c)
		r.apply(t)
		for _, ip := range []string{"ip", "ip6"} {
			r.Node.Run(t, ip+strings.TrimPrefix(b.iptables, "ip"), "-I", "FORWARD", "-j", "ACCEPT")
		}
		for _, addr := range []string{testnet.MetadataAddr, testnet.MetadataAddr6} {
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			if c, err := r.Pods[0].Dial(ctx, net.JoinHostPort(addr, "8080")); err == nil {
				_ = c.Close()
				t.Errorf("a pod reached port 8080 of %s", addr)
			}
			cancel()
		}
		r.wantUnseen(t)
	})
}

func TestEachBackEndCountsAndKeepsItsCounters(t *testing.T) {
	eachBackEnd(t, func(t *testing.T, _ backEnd, c iptables.Config) {
		r := newRig(t, testnet.Bridge, c)
		r.apply(t)
		for range 2 {
			wantAnswer(t, r.Pods[0].Namespace, urls()[0], proxied)
			r.apply(t)
		}
		wantRefused(t, r.Pods[0].Namespace, testnet.URL(testnet.MetadataAddr, 8080, "/"))
		if s := r.check(t); s.Redirected != 2 || s.Locked != 1 {
			t.Errorf("got %d redirected and %d locked, want 2 and 1", s.Redirected, s.Locked)
		}
	})
}

func TestARepairWithIptablesLeavesTheRestWithItsCounters(t *testing.T) {
	eachBackEnd(t, func(t *testing.T, b backEnd, c iptables.Config) {
		if b.name == "nftables" {
			return // it replaces its table as a whole
		}
		r := newRig(t, testnet.Bridge, c)
		r.apply(t)
		wantAnswer(t, r.Pods[0].Namespace, urls()[0], proxied)
		r.Node.Run(t, b.iptables, "-t", "nat", "-D", "PREROUTING", "1")
		r.apply(t)
		if s := r.check(t); !s.Complete || s.Redirected != 1 {
			t.Errorf("got complete %t, %d redirected; want complete and 1", s.Complete, s.Redirected)
		}
	})
}

func TestEachBackEndKnowsThePodsInterfaces(t *testing.T) {
	tests := []struct {
		iface string
		want  [2]string // what the pods on eni0 and eni1 get
	}{
		{"eni+", [2]string{proxied, proxied}},
		{"eni0", [2]string{proxied, testnet.Real}},
		{"!eni0", [2]string{testnet.Real, proxied}},
		{"!eni+", [2]string{testnet.Real, testnet.Real}},
		{"cali+,eni1", [2]string{testnet.Real, proxied}},
		{"eni+,!eni1", [2]string{proxied, testnet.Real}},
		{"eni", [2]string{testnet.Real, testnet.Real}},
	}
	eachBackEnd(t, func(t *testing.T, _ backEnd, c iptables.Config) {
		for _, tt := range tests {
			t.Run(tt.iface, func(t *testing.T) {
				c := c
				c.Interface = tt.iface
				r := newRig(t, testnet.Routed, c)
				r.apply(t)
				for i, p := range r.Pods {
					for _, url := range urls() {
						wantAnswer(t, p.Namespace, url, tt.want[i])
					}
				}
				if s := r.check(t); !s.Complete {
					t.Errorf("got %q, want a complete rule set", s.Problems)
				}
			})
		}
	})
}

func TestEachBackEndLocksIPv6WhereTheNodeHasNoSuchAddress(t *testing.T) {
	eachBackEnd(t, func(t *testing.T, _ backEnd, c iptables.Config) {
		c.NodeAddrs = []netip.Addr{netip.MustParseAddr(testnet.NodeAddr)}
		r := newRig(t, testnet.Routed, c)
		r.apply(t)
		wantAnswer(t, r.Pods[0].Namespace, urls()[0], proxied)
		wantRefused(t, r.Pods[0].Namespace, urls()[1])
		r.wantUnseen(t)
		if s := r.check(t); !s.Complete || !contains(s.Warnings, testnet.MetadataAddr6) {
			t.Errorf("got complete %t with %q and %q, want complete and a warning about IPv6", s.Complete, s.Problems, s.Warnings)
		}
	})
}

func TestOthersRulesStayWithEachBackEnd(t *testing.T) {
	eachBackEnd(t, func(t *testing.T, b backEnd, c iptables.Config) {
		r := newRig(t, testnet.Routed, c)
		r.Node.Run(t, b.iptables, dnatRule("-A", testnet.NodeAddr, peerPort)...)
		r.Node.Run(t, b.iptables, "-N", "THEIRS")
		r.Node.Run(t, b.iptables, "-A", "THEIRS", "-d", testnet.MetadataAddr, "-j", "ACCEPT")
		r.Node.Run(t, b.iptables, "-A", "FORWARD", "-j", "THEIRS")
		r.Node.Run(t, b.iptables, "-t", "security", "-A", "FORWARD", "-j", "ACCEPT")
		read := func() string {
			return r.Node.Run(t, "sh", "-c", "for t in nat filter security; do "+b.iptables+" -t $t -S; done")
		}
		before := read()
		r.apply(t)
		if got := without(read(), "POD2ROLE-"); got != before {
			t.Errorf("with ours in place: got\n%s\nwant\n%s", got, before)
		}
		for range 2 { // the second time there is nothing
			if err := r.Node.Do(func() error { return r.redirect.Remove(t.Context()) }); err != nil {
				t.Fatal(err)
			}
		}
		if got := read(); got != before {
			t.Errorf("after Remove: got\n%s\nwant\n%s", got, before)
		}
	})
}

// without leaves out the lines that have the part in them.
func without(text, part string) string {
	var kept strings.Builder
	for line := range strings.Lines(text) {
		if !strings.Contains(line, part) {
			kept.WriteString(line)
		}
	}
	return kept.String()
}

// What kube2iam's chart runs before it stops, and what Kiam runs when it stops.
func TestEachBackEndSurvivesThePeersCleaningUp(t *testing.T) {
	kube2iam := func(b backEnd) string {
		return "eval `" + b.iptables + "-save | grep 169.254.169.254 | sed s/-A/'" + b.iptables + " -t nat -D'/g`"
	}
	kiam := func(b backEnd) string {
		return b.iptables + " " + strings.Join(dnatRule("-D", testnet.NodeAddr, peerPort), " ")
	}
	for _, peer := range []struct {
		name    string
		command func(backEnd) string
	}{{"kube2iam", kube2iam}, {"Kiam", kiam}} {
		t.Run(peer.name, func(t *testing.T) {
			eachBackEnd(t, func(t *testing.T, b backEnd, c iptables.Config) {
				r := newRig(t, testnet.Routed, c)
				r.Node.Run(t, b.iptables, dnatRule("-A", testnet.NodeAddr, peerPort)...)
				r.apply(t)
				stop := r.run(t)
				_ = r.Node.Command("sh", "-c", peer.command(b)).Run() // kube2iam's fails on more than one rule
				r.whole(t)
				for _, url := range urls() {
					wantAnswer(t, r.Pods[0].Namespace, url, proxied)
				}
				wantRefused(t, r.Pods[0].Namespace, testnet.URL(testnet.MetadataAddr, 8080, "/"))
				stop()
				r.wantUnseen(t)
			})
		})
	}
}

// A daemon that is told to use another back end leaves nothing of the first in front of it, and takes both out.
func TestChangingTheBackEndLeavesOneRedirect(t *testing.T) {
	for _, kind := range []string{"iptables-nft", "iptables-legacy"} {
		t.Run(kind, func(t *testing.T) {
			t.Setenv("XTABLES_LOCKFILE", t.TempDir()+"/lock")
			c := config()
			c.Backend, c.Port = "nftables", 9
			r := newRig(t, testnet.Routed, c)
			r.apply(t)
			c.Backend, c.Port = kind, appPort
			var err error
			if r.redirect, err = iptables.New(c); err != nil {
				t.Fatal(err)
			}
			r.apply(t)
			wantAnswer(t, r.Pods[0].Namespace, urls()[0], proxied)

			c.Backend = "nftables"
			if r.redirect, err = iptables.New(c); err != nil {
				t.Fatal(err)
			}
			r.apply(t)
			wantAnswer(t, r.Pods[0].Namespace, urls()[0], proxied)
			if s := r.check(t); !s.Complete || !s.First || len(s.Foreign) > 0 || !contains(s.Warnings, "by another back end are left") {
				t.Errorf("got %+v, want complete, first and a warning of what is left", s)
			}
			if err := r.Node.Do(func() error { return r.redirect.Remove(t.Context()) }); err != nil {
				t.Fatal(err)
			}
			if s := r.check(t); s.Complete || len(s.Warnings)+len(s.Foreign) > 0 {
				t.Errorf("got %+v after Remove, want nothing", s)
			}
			wantAnswer(t, r.Pods[0].Namespace, urls()[0], testnet.Real)
		})
	}
}
