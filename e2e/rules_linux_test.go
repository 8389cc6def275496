package e2e_test

import (
	"errors"
	"os/exec"
	"strings"
	"testing"

	"pod2role/e2e/testnet"
)

// rules runs "pod2role rules" on the node, and returns its exit status and what it printed.
func (n *node) rules(t *testing.T, args ...string) (code int, text string) {
	t.Helper()
	cmd := n.Node.Command("setpriv", append([]string{netAdmin, "--inh-caps=-all", "--no-new-privs", program("pod2role"), "rules"}, args...)...)
	out, err := cmd.CombinedOutput()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return exit.ExitCode(), string(out)
	} else if err != nil {
		t.Fatal(err)
	}
	return 0, string(out)
}

// expectRules checks what "pod2role rules check" finds.
func (n *node) expectRules(t *testing.T, code int, text string) {
	t.Helper()
	if got, out := n.rules(t, "check", "--host-ip="+testnet.NodeAddr); got != code || !strings.Contains(out, text) {
		t.Errorf("rules check: got %d and\n%swant %d and %q", got, out, code, text)
	}
}

func TestRulesByHand(t *testing.T) {
	n := newNode(t, testnet.Bridge, options{})
	hostIP := "--host-ip=" + testnet.NodeAddr
	p := n.pod(t, "shop", "web", "shop-web")
	n.expectRules(t, 1, "problem: the table inet pod2role is missing")

	// Before there is a daemon, the door is closed.
	if code, out := n.rules(t, "install", hostIP); code != 0 {
		t.Fatalf("rules install: got %d: %s", code, out)
	}
	n.expectRules(t, 0, "complete and first (nftables)")
	p.expectConnectionRefused(t)
	if code, out := n.rules(t, "print", hostIP); code != 0 || out != n.Node.Run(t, "nft", "--stateless", "list", "ruleset") {
		t.Errorf("rules print: got %d and\n%swant what the kernel holds", code, out)
	}

	// The daemon finds them as it would have made them.
	d := n.ready(t)
	p.expectRole(t, "shop-web")
	if strings.Contains(d.log.String(), "changed by somebody else") {
		t.Error("the daemon repaired the rules")
	}

	foreign := "table ip foreign { chain pre { type nat hook prerouting priority -120; ip daddr 169.254.169.254 tcp dport 80 dnat to 10.0.0.1:1; }; }"
	n.Node.Run(t, "nft", foreign)
	n.expectRules(t, 1, "another program's rule, consulted before ours: ip foreign pre 1")
	n.Node.Run(t, "nft", "delete table ip foreign")
	n.expectRules(t, 0, "complete and first")

	d.stop(t)
	if code, out := n.rules(t, "remove"); code != 0 {
		t.Fatalf("rules remove: got %d: %s", code, out)
	}
	if left := n.Node.Run(t, "nft", "list", "ruleset"); left != "" {
		t.Errorf("rules remove left\n%s", left)
	}
	if code, out := n.rules(t, "remove"); code != 0 {
		t.Errorf("rules remove, a second time: got %d: %s", code, out)
	}
	if code, out := n.rules(t, "check", "--hold=1s"); code != 2 || !strings.Contains(out, "--hold") {
		t.Errorf("rules check with an option of the daemon's: got %d: %s", code, out)
	}
}
