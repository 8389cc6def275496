package e2e_test

import (
	"context"
	"strings"
	"syscall"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"pod2role/e2e/testnet"
	"pod2role/sandbox/kubeapi"
)

const (
	ownNamespace = "kube-system"
	ownName      = "pod2role"
	own          = ownNamespace + "/" + ownName
	leftText     = "no longer belongs to the DaemonSet"
)

// stop ends the daemon as the kubelet does.
func (d *daemon) stop(t *testing.T) {
	t.Helper()
	d.signal(t, syscall.SIGTERM)
	if code := d.exitCode(t); code != 0 {
		t.Errorf("the daemon exited with %d, want 0", code)
	}
}

// awaitWatch waits until a daemon has been shown the DaemonSet.
func (n *node) awaitWatch(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := n.api.WaitFor(ctx, 1, func(r kubeapi.Request) bool {
		return r.Resource == "daemonsets" && r.Verb == "watch" && r.Sent > 0
	}); err != nil {
		t.Fatal(err)
	}
}

func TestTheRulesGoOnlyWithTheDaemonSet(t *testing.T) {
	daemonSet := func() *appsv1.DaemonSet {
		return &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: ownNamespace, Name: ownName}}
	}
	deleted := func(t *testing.T, n *node, d *daemon) {
		if err := n.api.Delete(daemonSet()); err != nil {
			t.Fatal(err)
		}
		d.waitFor(t, leftText)
	}
	for _, tt := range []struct {
		name   string
		change func(*testing.T, *node, *daemon)
		own    string // --daemonset
		stay   bool
	}{
		{"nothing happens", func(*testing.T, *node, *daemon) {}, own, true},
		{"it is deleted", deleted, own, false},
		{"it is deleted and the token revoked after that", func(t *testing.T, n *node, d *daemon) {
			deleted(t, n, d)
			n.api.RevokeToken()
			n.api.DropWatches()
		}, own, false},
		{"the token is revoked and it is deleted after that", func(t *testing.T, n *node, _ *daemon) {
			n.api.RevokeToken()
			n.api.DropWatches()
			if err := n.api.Delete(daemonSet()); err != nil {
				t.Fatal(err)
			}
		}, own, true},
		{"the API server is away", func(_ *testing.T, n *node, _ *daemon) { n.api.SetOutage(kubeapi.Refuse) }, own, true},
		{"the node is not selected any more", func(t *testing.T, n *node, d *daemon) {
			if err := kubeapi.Update(n.api, ownNamespace, ownName, func(ds *appsv1.DaemonSet) {
				ds.Spec.Template.Spec.NodeSelector = map[string]string{"iam": "pod2role"}
			}); err != nil {
				t.Fatal(err)
			}
			d.waitFor(t, leftText)
		}, own, false},
		{"the node is tainted for new pods", func(t *testing.T, n *node, _ *daemon) {
			if err := kubeapi.Update(n.api, "", nodeName, func(node *corev1.Node) {
				node.Spec.Taints = []corev1.Taint{{Key: "x", Effect: corev1.TaintEffectNoSchedule}}
			}); err != nil {
				t.Fatal(err)
			}
		}, own, true},
		{"it is deleted and is not known to be the own one", func(t *testing.T, n *node, _ *daemon) {
			if err := n.api.Delete(daemonSet()); err != nil {
				t.Fatal(err)
			}
		}, "", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := newNode(t, testnet.Routed, options{})
			n.apply(t, daemonSet())
			d := n.ready(t, "--daemonset="+tt.own)
			if tt.own != "" {
				n.awaitWatch(t)
			}
			n.expectRules(t, 0, "complete and first")
			tt.change(t, n, d)
			n.expectRules(t, 0, "complete and first") // until it is told to stop
			d.stop(t)
			if tt.stay {
				n.expectRules(t, 0, "complete and first")
			} else {
				n.expectRules(t, 1, "the table inet pod2role is missing")
			}
		})
	}
}

// The rules are the newcomer's from the hand-over on: the old process neither repairs them nor takes them with it.
func TestAHandOverPassesTheRules(t *testing.T) {
	n := newNode(t, testnet.Bridge, options{})
	n.apply(t, &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: ownNamespace, Name: ownName}})
	p := n.pod(t, "shop", "web", "shop-web")
	args := func(probe string) []string {
		return []string{"--handover-dir=" + n.dir + "/doors", "--probe-socket=" + n.dir + "/" + probe, "--daemonset=" + own}
	}
	old := n.ready(t, args("a")...)
	p.expectRole(t, "shop-web")
	newcomer := n.ready(t, append(args("b"), "--app-port=9181", "--metrics-port=9182", "--debug-addr=127.0.0.1:9183")...)
	old.waitFor(t, "another process serves")
	p.expectRole(t, "shop-web")
	// Its rules lead elsewhere than the old one's.
	if code, out := n.rules(t, "check", "--host-ip="+testnet.NodeAddr, "--app-port=9181"); code != 0 {
		t.Errorf("the rules are not the newcomer's: %s", out)
	}
	if err := n.api.Delete(&appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: ownNamespace, Name: ownName}}); err != nil {
		t.Fatal(err)
	}
	old.waitFor(t, leftText)
	newcomer.waitFor(t, leftText)
	old.stop(t)
	if code, out := n.rules(t, "check", "--host-ip="+testnet.NodeAddr, "--app-port=9181"); code != 0 {
		t.Errorf("the old process took the rules with it: %s", out)
	}
	p.expectRole(t, "shop-web")
	newcomer.stop(t)
	n.expectRules(t, 1, "the table inet pod2role is missing")
	if strings.Contains(newcomer.log.String(), "changed by somebody else") {
		t.Error("the newcomer had to repair the rules")
	}
}
