package e2e_test

import (
	"context"
	"errors"
	"net/http"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"pod2role/e2e/testnet"
	"pod2role/sandbox/kubeapi"
)

func TestWhileTheDaemonIsAwayPodsAreRefused(t *testing.T) {
	inEachTopology(t, func(t *testing.T, topology testnet.Topology) {
		n := newNode(t, topology, options{})
		pods := []*pod{n.pod(t, "shop", "web", "shop-web"), n.pod(t, "shop", "plain", "")}
		for _, signal := range []os.Signal{syscall.SIGKILL, syscall.SIGTERM} {
			t.Run(signal.String(), func(t *testing.T) {
				d := n.ready(t)
				pods[0].expectRole(t, "shop-web")
				d.signal(t, signal)
				if code := d.exitCode(t); signal == syscall.SIGTERM && code != 0 {
					t.Errorf("the daemon exited with %d, want 0", code)
				}
				before := n.metadataConnections(t)
				for _, p := range pods {
					p.expectConnectionRefused(t)
				}
				if after := n.metadataConnections(t); after != before {
					t.Errorf("the metadata service had %s connections before pods asked and %s after, want no change", before, after)
				}
			})
		}
		n.ready(t)
		pods[0].expectRole(t, "shop-web")
	})
}

// expectConnectionRefused checks that the pod finds a closed door.
func (p *pod) expectConnectionRefused(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	conn, err := p.Dial(ctx, metadata)
	if err == nil {
		_ = conn.Close()
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("%s: got %v, want %v", p, err, syscall.ECONNREFUSED)
	}
}

func TestWithoutTheAPIServerNoPodIsServedAndNoneGetsThrough(t *testing.T) {
	inEachTopology(t, func(t *testing.T, topology testnet.Topology) {
		n := newNode(t, topology, options{})
		p := n.pod(t, "shop", "web", "shop-web")
		n.api.SetOutage(kubeapi.Refuse)
		d := n.start(t, "--hold=500ms")
		d.waitFor(t, `msg="not ready"`)

		p.expectRefusal(t, http.StatusServiceUnavailable)
		a, err := exchange(t.Context(), n.Node, "127.0.0.1:8182", http.MethodGet, "/readyz")
		if err != nil || a.code != http.StatusServiceUnavailable || !strings.Contains(a.body, "API server") {
			t.Errorf("/readyz: got %d %q (%v), want %d and that the API server is missing", a.code, a.body, err, http.StatusServiceUnavailable)
		}
		if !d.running() {
			t.Error("the daemon gave up")
		}

		n.api.SetOutage(kubeapi.Up)
		d.waitFor(t, "msg=ready")
		p.expectRole(t, "shop-web")
		if a, err := exchange(t.Context(), n.Node, "127.0.0.1:8182", http.MethodGet, "/readyz"); err != nil || a.code != http.StatusOK {
			t.Errorf("/readyz: got %d %q (%v), want %d", a.code, a.body, err, http.StatusOK)
		}

		n.api.SetOutage(kubeapi.Refuse)
		p.expectRole(t, "shop-web")
	})
}

func TestARequestIsHeldUntilTheAPIServerIsBack(t *testing.T) {
	n := newNode(t, testnet.Routed, options{})
	p := n.pod(t, "shop", "web", "shop-web")
	n.api.SetOutage(kubeapi.Refuse)
	d := n.start(t, "--hold=30s")
	d.waitFor(t, `msg="not ready"`)
	answers := make(chan answer, 1)
	go func() {
		a, _ := exchange(t.Context(), p.Namespace, metadata, http.MethodGet, listPath) // the zero answer is wrong as well
		answers <- a
	}()
	n.api.SetOutage(kubeapi.Up)
	if a := <-answers; a.code != http.StatusOK || a.body != "shop-web" {
		t.Errorf("got %d %q, want the pod's role", a.code, a.body)
	}
}

// metadataConnections is how many connections have been opened in the metadata service's namespace, by the kernel's own
// count (RFC 4022, tcpPassiveOpens).
func (n *node) metadataConnections(t *testing.T) string {
	t.Helper()
	var text []byte
	if err := n.Metadata.Do(func() (err error) {
		text, err = os.ReadFile("/proc/thread-self/net/snmp")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	var names []string
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if fields[0] != "Tcp:" {
			continue
		}
		if names == nil {
			names = fields
			continue
		}
		return fields[slices.Index(names, "PassiveOpens")]
	}
	t.Fatal("the kernel tells nothing of TCP")
	return ""
}
