package iptables_test

import (
	"context"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"pod2role/e2e/testnet"
	"pod2role/iptables"
)

// run starts Run in the node's namespace, and ends it with the test or before.
func (r *rig) run(t *testing.T) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Node.Do(func() error { return r.redirect.Run(ctx) }) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: got %v, want nil", err)
		}
	}
	t.Cleanup(stop)
	return stop
}

func TestWhatSomebodyChangesIsPutBackAtOnce(t *testing.T) {
	tests := []struct{ name, script string }{
		{"everything flushed", "flush ruleset"},
		{"table deleted", "delete table inet pod2role"},
		{"redirect flushed", "flush chain inet pod2role proxy"},
		{"lock flushed", "flush chain inet pod2role lock"},
		{"rule in front of ours", "insert rule inet pod2role proxy accept"},
		{"chain beside ours", "add chain inet pod2role other { type nat hook prerouting priority -199; }"},
		{"table put to sleep", "add table inet pod2role { flags dormant; }"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := config() // with a resync of a minute: only the kernel's word can wake Run in time
			log, warned := warnings()
			metrics := prometheus.NewRegistry()
			c.Log, c.Registerer = log, metrics
			r := newRig(t, testnet.Bridge, c)
			r.apply(t)
			stop := r.run(t)
			for range 2 { // the repair of a repair as well
				r.nft(t, tt.script)
				next(t, warned)
				if s := r.check(t); !s.Complete {
					t.Fatalf("got %q after the repair, want a complete rule set", s.Problems)
				}
				for _, url := range urls() {
					wantAnswer(t, r.Pods[0].Namespace, url, proxied)
				}
			}
			stop()
			if got := value(t, metrics, "pod2role_iptables_repairs_total"); got != 2 {
				t.Errorf("got %v repairs counted, want 2", got)
			}
			if got := value(t, metrics, "pod2role_iptables_complete"); got != 1 {
				t.Errorf("got complete %v, want 1", got)
			}
			r.wantUnseen(t)
			if s := r.check(t); !s.Complete {
				t.Errorf("got %q after Run, want the rules left in place", s.Problems)
			}
		})
	}
}

func TestOwnChangesAndOthersTablesAreNoReasonForARepair(t *testing.T) {
	c := config()
	log, warned := warnings()
	c.Log = log
	r := newRig(t, testnet.Bridge, c)
	stop := r.run(t)
	next(t, warned) // nothing was there: Run has put it in, and hears of that
	r.nft(t, "table inet other { chain c { type filter hook prerouting priority 0; }; }")
	r.apply(t)
	r.nft(t, "delete table inet other")
	r.nft(t, "flush table inet pod2role")
	next(t, warned) // after all of the above
	stop()
	select {
	case w := <-warned:
		t.Errorf("got the repair %q, want none", w)
	default:
	}
}

func TestOthersRulesStayByteForByte(t *testing.T) {
	t.Setenv("XTABLES_LOCKFILE", t.TempDir()+"/lock")
	r := newRig(t, testnet.Routed, config())
	r.nft(t, `table inet foreign { set s { type ipv4_addr; elements = { 169.254.169.254 }; }
		chain c { type nat hook prerouting priority -120; ip daddr @s counter comment "theirs"; }
		chain d { type filter hook forward priority 0; ip daddr 169.254.169.254 drop; }; }`)
	r.Node.Run(t, "iptables-nft", dnatRule("-A", testnet.NodeAddr, peerPort)...)
	r.Node.Run(t, "iptables-legacy", dnatRule("-A", testnet.NodeAddr, peerPort)...)
	read := func() string {
		return r.nft(t, "list table inet foreign") + r.nft(t, "list table ip nat") +
			r.Node.Run(t, "sh", "-c", "nft -a list table inet foreign; nft -a list table ip nat; iptables-legacy -t nat -S; iptables-nft -t nat -S")
	}
	before := read()

	r.apply(t)
	stop := r.run(t)
	if got := read(); got != before {
		t.Errorf("with ours in place: got\n%s\nwant\n%s", got, before)
	}
	stop()
	if err := r.Node.Do(func() error { return r.redirect.Remove(t.Context()) }); err != nil {
		t.Fatal(err)
	}
	if got := read(); got != before {
		t.Errorf("after Remove: got\n%s\nwant\n%s", got, before)
	}
}

func TestApplyLeavesRightRulesWithTheirCounters(t *testing.T) {
	r := newRig(t, testnet.Bridge, config())
	r.apply(t)
	wantAnswer(t, r.Pods[0].Namespace, urls()[0], proxied)
	r.apply(t)
	if got := r.check(t).Redirected; got != 1 {
		t.Errorf("got %d connections counted, want 1", got)
	}
}

func TestANewPortReplacesTheOldOne(t *testing.T) {
	r := newRig(t, testnet.Bridge, config())
	c := config()
	c.Port = 9999
	old, err := iptables.New(c)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Node.Do(func() error { return old.Apply(t.Context()) }); err != nil {
		t.Fatal(err)
	}
	r.apply(t)
	wantAnswer(t, r.Pods[0].Namespace, urls()[0], proxied)
	if s := r.check(t); !s.Complete {
		t.Errorf("got %q, want a complete rule set", s.Problems)
	}
}

// next waits for the next warning. A test in which none comes fails instead of hanging.
func next(t *testing.T, warned <-chan string) {
	t.Helper()
	select {
	case <-warned:
	case <-time.After(10 * time.Second):
		t.Fatal("nothing was put back")
	}
}

// value reads a metric without labels.
func value(t *testing.T, g prometheus.Gatherer, name string) float64 {
	t.Helper()
	families, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			m := f.GetMetric()[0]
			return m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	t.Fatalf("there is no metric %s", name)
	return 0
}
