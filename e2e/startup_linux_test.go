package e2e_test

import (
	"net/http"
	"strings"
	"testing"

	"pod2role/e2e/testnet"
)

func TestAPortThatIsInUseEndsTheDaemonWithTheLikelyReason(t *testing.T) {
	n := newNode(t, testnet.Routed, options{})
	n.Node.Listen(t, "tcp", ":8181")
	d := n.start(t)
	if code := d.exitCode(t); code != 1 {
		t.Errorf("got exit status %d, want 1", code)
	}
	for _, want := range []string{"--app-port", "8181", "in use", "kube2iam", "Kiam"} {
		if !strings.Contains(d.log.String(), want) {
			t.Errorf("got %q, want %q in it", d.log, want)
		}
	}
}

func TestAllMistakesInTheConfigurationAreToldAtOnce(t *testing.T) {
	n := newNode(t, testnet.Routed, options{})
	d := n.run(t, netAdmin, "--no-such-flag", "--hold=soon", "--host-ip=node-1", "--base-role-arn=nonsense")
	if code := d.exitCode(t); code != 2 {
		t.Errorf("got exit status %d, want 2", code)
	}
	for _, want := range []string{"--no-such-flag", "--hold", "--host-ip", "base ARN", "--node"} {
		if !strings.Contains(d.log.String(), want) {
			t.Errorf("got %q, want %q in it", d.log, want)
		}
	}
}

func TestAnInterfaceThatDoesNotExistYetIsNoReasonNotToStart(t *testing.T) {
	n := newNode(t, testnet.Routed, options{})
	d := n.ready(t, "--host-interface=cali0")
	d.waitFor(t, "no interface cali0 exists")
}

func TestWithoutTheRightToChangeTheNetworkTheDaemonSaysHowToGiveIt(t *testing.T) {
	n := newNode(t, testnet.Routed, options{})
	d := n.run(t, "--bounding-set=-all", "--node="+nodeName, "--kubeconfig="+n.kubeconfig(), "--host-ip="+testnet.NodeAddr, "--cni-results-dir="+n.results())
	d.waitFor(t, "give the container the capability NET_ADMIN")
	a, err := exchange(t.Context(), n.Node, "127.0.0.1:8182", http.MethodGet, "/readyz")
	if err != nil || a.code != http.StatusServiceUnavailable || !strings.Contains(a.body, "NET_ADMIN") {
		t.Errorf("/readyz: got %d %q (%v), want %d and the remedy", a.code, a.body, err, http.StatusServiceUnavailable)
	}
	if a, err := exchange(t.Context(), n.Node, "127.0.0.1:8182", http.MethodGet, "/healthz"); err != nil || a.code != http.StatusOK {
		t.Errorf("/healthz: got %d %q (%v), want %d", a.code, a.body, err, http.StatusOK)
	}
	if !d.running() {
		t.Error("the daemon ended, want it to wait for better times")
	}
}
