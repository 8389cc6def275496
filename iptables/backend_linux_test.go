package iptables

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// unsupported is a back end whose kernel has part of what is needed, or nothing.
type unsupported struct {
	backend
	inspects bool
}

func (unsupported) name() string { return "the first" }

func (u unsupported) inspect(plan) (inspection, error) {
	if !u.inspects {
		return inspection{}, ErrNotSupported
	}
	return inspection{problems: []string{"the table is missing"}}, nil
}
func (unsupported) apply(plan) error { return ErrNotSupported }

func TestIptablesIsUsedWhereTheKernelRefusesNftables(t *testing.T) {
	for _, inspects := range []bool{false, true} {
		next := &fakeKernel{}
		a := &auto{now: unsupported{inspects: inspects}, next: next}
		if got := a.name(); got != "the first" {
			t.Errorf("got %s before anything was tried", got)
		}
		if _, err := a.inspect(plan{}); err != nil {
			t.Fatal(err)
		}
		if err := a.apply(plan{}); err != nil {
			t.Fatal(err)
		}
		if _, err := a.inspect(plan{}); err != nil {
			t.Fatal(err)
		}
		if next.applied != 1 || next.inspected == 0 || a.name() != "a fake" {
			t.Errorf("got %d applied, %d inspected by %s; want the second back end used", next.applied, next.inspected, a.name())
		}
	}
}

func TestAnErrorOfAnotherKindIsNoReasonForIptables(t *testing.T) {
	now, next := &fakeKernel{applyErr: ErrNotPermitted}, &fakeKernel{}
	a := &auto{now: now, next: next}
	if err := a.apply(plan{}); !errors.Is(err, ErrNotPermitted) || next.applied > 0 {
		t.Errorf("got %v and %d applied by iptables, want %v and none", err, next.applied, ErrNotPermitted)
	}
}

func TestWhereNeitherIsToBeHadBothReasonsAreTold(t *testing.T) {
	a := &auto{now: unsupported{}, next: &fakeKernel{applyErr: ErrNoIptables}}
	if err := a.apply(plan{}); !errors.Is(err, ErrNotSupported) || !errors.Is(err, ErrNoIptables) {
		t.Errorf("got %v, want both reasons", err)
	}
}

func TestWithoutTheCommandTheErrorSaysSo(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	for _, name := range []string{"iptables", "iptables-nft", "iptables-legacy"} {
		b, err := newBackend(name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := b.inspect(plan{}); !errors.Is(err, ErrNoIptables) {
			t.Errorf("%s: got %v, want %v", name, err, ErrNoIptables)
		}
	}
}

func TestTheKindOfIptablesIsTheHosts(t *testing.T) {
	kubelets, few, many := ruleSet{kubelet: true}, ruleSet{rules: 2}, ruleSet{rules: 20}
	tests := []struct {
		name          string
		nft, legacy   ruleSet
		plain, wanted string
	}{
		{"the kubelet's, nft", kubelets, many, kindLegacy, kindNft},
		{"the kubelet's, legacy", many, kubelets, kindNft, kindLegacy},
		{"where most rules are, nft", many, few, kindLegacy, kindNft},
		{"where most rules are, legacy", few, many, kindNft, kindLegacy},
		{"no rules", ruleSet{}, ruleSet{}, kindLegacy, kindLegacy},
		{"no rules and no plain command", ruleSet{}, ruleSet{}, "", kindNft},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := preferred(tt.nft, tt.legacy, tt.plain); got != tt.wanted {
				t.Errorf("got %s, want %s", got, tt.wanted)
			}
		})
	}
}

func TestLegacyRulesAreLookedAtEveryFewSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPoller()
		begin := time.Now()
		for range 3 {
			<-p.changes()
		}
		if got := time.Since(begin); got != 3*pollInterval {
			t.Errorf("got three looks in %s, want %s", got, 3*pollInterval)
		}
		time.Sleep(2 * pollInterval) // nobody listens any more
		p.close()
	})
}

func TestTheIptablesRulesAreTextAsAnOperatorKnowsIt(t *testing.T) {
	r, err := New(Config{
		Backend:   "iptables",
		NodeAddrs: []netip.Addr{netip.MustParseAddr("10.0.0.10")},
		Port:      8181,
		Interface: "eni+,!eni9",
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"# iptables-restore --noflush\n*filter\n:POD2ROLE-LOCK - [0:0]\n-A POD2ROLE-LOCK -i eni9 -j RETURN\n",
		"-A POD2ROLE-LOCK -d 169.254.169.254/32 -i eni+ -p tcp -m comment --comment \"pod2role: nothing else that a pod sends reaches the metadata service\" -j REJECT --reject-with tcp-reset\n",
		"-I FORWARD 1 -d 169.254.169.254/32 -m comment --comment \"pod2role: what is sent to the metadata service\" -j POD2ROLE-LOCK\n",
		"*nat\n:POD2ROLE-REDIRECT - [0:0]\n",
		"-p tcp -m tcp --dport 80 -m comment --comment \"pod2role: what pods ask the metadata service goes to the proxy\" -j DNAT --to-destination 10.0.0.10:8181\n",
		"-d fd00:ec2::254/128 -i eni+ -m comment --comment \"pod2role: nothing else that a pod sends reaches the metadata service\" -j DROP\n",
	} {
		if !strings.Contains(r.String(), want) {
			t.Errorf("%q is not in\n%s", want, r)
		}
	}
}
