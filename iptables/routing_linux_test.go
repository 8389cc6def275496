package iptables_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pod2role/e2e/testnet"
	"pod2role/iptables"
)

// branchPod makes a pod one with security groups of its own, as the AWS VPC CNI does in strict mode: whatever it says is
// routed by a table of its own, which leads out into the VPC, ahead of the table local; and the way back to it is in that
// table only. The interface into the VPC is eth0 here; there it is a VLAN of it.
func (r *rig) branchPod(t *testing.T, p *testnet.Pod, table int) {
	t.Helper()
	name := fmt.Sprintf("vlan%d", table)
	r.Node.Run(t, "sh", "-ec", strings.NewReplacer("DEV", p.HostInterface, "NEW", name, "ADDR4", p.Addr.String(), "ADDR6", p.Addr6.String(), "TABLE", fmt.Sprint(table)).Replace(`
		ip link set DEV down
		ip link set DEV name NEW
		ip link set NEW up
		ip addr add fe80::1/64 dev NEW nodad 2>/dev/null || true
		for f in 4 6; do
			ip -$f rule show | grep -q '^20:' || { ip -$f rule add from all lookup local prio 20; ip -$f rule del from all lookup local prio 0; }
			ip -$f rule add iif NEW lookup TABLE prio 10
		done
		ip -4 route replace default via 10.0.0.1
		ip -6 route replace default via fd00:10::1
		ip -4 route add ADDR4/32 dev NEW scope link table TABLE
		ip -6 route add ADDR6/128 dev NEW table TABLE
		ip -4 route add default via 10.0.0.1 table TABLE
		ip -6 route add default via fd00:10::1 table TABLE
	`))
}

func TestPodsWithSecurityGroupsOfTheirOwnReachTheProxy(t *testing.T) {
	eachBackEnd(t, func(t *testing.T, _ backEnd, c iptables.Config) {
		r := newRig(t, testnet.Routed, c)
		routes := func() string { return r.Node.Run(t, "sh", "-c", "ip -4 rule; ip -6 rule") }
		r.branchPod(t, r.Pods[0], 101)
		before := routes()
		r.apply(t)
		other := r.AddPod(t)
		for _, url := range urls() {
			for _, p := range []*testnet.Pod{r.Pods[0], r.Pods[1], other} {
				wantAnswer(t, p.Namespace, url, proxied)
			}
			wantAnswer(t, r.Node, url, testnet.Real)
		}
		for _, addr := range []string{testnet.MetadataAddr, testnet.MetadataAddr6} {
			wantRefused(t, r.Pods[0].Namespace, testnet.URL(addr, 8080, "/"))
		}
		if s := r.check(t); !s.Complete || !s.First || len(s.Foreign)+len(s.Warnings) > 0 {
			t.Errorf("got %+v, want complete, first and nothing else", s)
		}
		if err := r.Node.Do(func() error { return r.redirect.Remove(t.Context()) }); err != nil {
			t.Fatal(err)
		}
		if got := routes(); got != before {
			t.Errorf("after Remove: got the routing rules\n%s\nwant\n%s", got, before)
		}
	})
}

func TestRoutingRulesAreMadeOnlyForPodsWithSecurityGroups(t *testing.T) {
	r := newRig(t, testnet.Routed, config())
	before := r.Node.Run(t, "ip", "rule")
	r.apply(t)
	if got := r.Node.Run(t, "ip", "rule"); got != before {
		t.Errorf("got the routing rules\n%s\nwant\n%s", got, before)
	}
	if got := r.nft(t, "list ruleset"); strings.Contains(got, "meta mark") {
		t.Errorf("got\n%s\nwant no rule about marks", got)
	}
}

func TestPodsWithSecurityGroupsComeAndGo(t *testing.T) {
	eachBackEnd(t, func(t *testing.T, _ backEnd, c iptables.Config) {
		r := newRig(t, testnet.Routed, c)
		before := r.Node.Run(t, "ip", "rule")
		r.apply(t)
		r.run(t)
		for i, p := range r.Pods {
			r.branchPod(t, p, 101+i)
			eventually(t, func() error { _, err := ask(p.Namespace, urls()[0]); return err })
			wantAnswer(t, p.Namespace, urls()[0], proxied)
		}
		for i, table := range []string{"101", "102"} {
			r.Node.Run(t, "ip", "-4", "rule", "del", "iif", "vlan"+table, "lookup", table)
			r.Node.Run(t, "ip", "-6", "rule", "del", "iif", "vlan"+table, "lookup", table)
			if i == 1 {
				r.Node.Run(t, "sh", "-ec", "ip rule add from all lookup local prio 0; ip rule del from all lookup local prio 20")
			}
			eventually(t, func() error {
				if got := r.Node.Run(t, "ip", "rule"); strings.Contains(got, "lookup "+table) || i == 1 && got != before {
					return fmt.Errorf("got the routing rules\n%s", got)
				}
				return nil
			})
		}
	})
}

// A routing rule of ours that somebody else deletes is put back.
func TestRoutingRulesArePutBack(t *testing.T) {
	c := config()
	log, warned := warnings()
	c.Log = log
	r := newRig(t, testnet.Routed, c)
	r.branchPod(t, r.Pods[0], 101)
	r.apply(t)
	r.run(t)
	r.Node.Run(t, "ip", "rule", "del", "prio", "5")
	next(t, warned)
	wantAnswer(t, r.Pods[0].Namespace, urls()[0], proxied)
}

// The text with the rules for such pods is what nft reads and prints as well.
func TestStringKnowsPodsWithSecurityGroups(t *testing.T) {
	r := newRig(t, testnet.Routed, config())
	r.branchPod(t, r.Pods[0], 101)
	r.apply(t)
	if got := r.Node.Run(t, "nft", "--stateless", "list", "ruleset"); got != r.redirect.String() {
		t.Errorf("nft prints\n%s\nwant\n%s", got, r.redirect)
	}
}

// eventually asks f until it is content.
func eventually(t *testing.T, f func() error) {
	t.Helper()
	var err error
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); {
		if err = f(); err == nil {
			return
		}
	}
	t.Fatal(err)
}
