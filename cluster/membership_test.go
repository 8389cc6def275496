package cluster_test

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"pod2role/cluster"
	"pod2role/sandbox/kubeapi"
)

func ownDaemonSet() *appsv1.DaemonSet {
	return &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "pod2role"}}
}

func ownNode() *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node, Labels: map[string]string{"os": "linux"}}}
}

// membership runs a Membership against a server that has the node and the DaemonSet, and others of both.
func membership(t *testing.T, cfg kubeapi.Config, before ...func(*kubeapi.Server)) (*rig, *cluster.Membership) {
	t.Helper()
	r := &rig{t: t, server: kubeapi.New(cfg), changed: make(chan struct{}, 1)}
	other, another := ownDaemonSet(), ownDaemonSet()
	other.Name, another.Namespace = "other", "shop"
	r.apply(ownDaemonSet(), other, another, ownNode(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-2"}})
	for _, f := range before {
		f(r.server)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	r.must(err)
	r.background(func(ctx context.Context) error { return r.server.Run(ctx, ln) })
	clients, err := cluster.ConnectTo(&rest.Config{Host: "http://" + ln.Addr().String()}, "test")
	r.must(err)
	m, err := cluster.NewMembership(cluster.MembershipConfig{
		Client: clients.Core, Namespace: "kube-system", Name: "pod2role", Node: node, OnChange: func() { r.tell("") },
	})
	r.must(err)
	r.background(m.Run)
	return r, m
}

func daemonSets(r kubeapi.Request) bool { return r.Resource == "daemonsets" }

// untilSeen waits until the watch of the node has seen what was last written.
func (r *rig) untilSeen(m *cluster.Membership) {
	r.t.Helper()
	stamp := time.Now().Format(time.RFC3339Nano)
	r.must(kubeapi.Update(r.server, "", node, func(n *corev1.Node) { n.Annotations = map[string]string{"stamp": stamp} }))
	stamped, _ := kubeapi.Get[*corev1.Node](r.server, "", node)
	r.untilMember(m, "the node is seen", func() bool { return m.Status()[1].Version == stamped.ResourceVersion })
}

func (r *rig) untilMember(m *cluster.Membership, what string, ok func() bool) {
	r.t.Helper()
	timeout := time.After(patience)
	for !ok() {
		select {
		case <-r.changed:
		case <-timeout:
			r.t.Fatalf("waiting until %s: %+v", what, m.Status())
		}
	}
}

func TestANodeLeavesItsDaemonSetByWhatTheWatchesHaveShown(t *testing.T) {
	del := func(s *kubeapi.Server) error { return s.Delete(ownDaemonSet()) }
	update := func(change func(*appsv1.DaemonSet)) func(*kubeapi.Server) error {
		return func(s *kubeapi.Server) error { return kubeapi.Update(s, "kube-system", "pod2role", change) }
	}
	for _, tt := range []struct {
		name   string
		change func(*kubeapi.Server) error
		want   string // "": it stays
	}{
		{"deleted", del, "was deleted"},
		{"being deleted", update(func(d *appsv1.DaemonSet) { d.DeletionTimestamp = &metav1.Time{Time: time.Now()} }), "being deleted"},
		{"another selector", update(func(d *appsv1.DaemonSet) { d.Spec.Template.Spec.NodeSelector = map[string]string{"os": "windows"} }), "os=windows"},
		{"a new image", update(func(d *appsv1.DaemonSet) { d.Spec.Template.Spec.Containers = []corev1.Container{{Image: "x"}} }), ""},
		{"others are deleted", func(s *kubeapi.Server) error {
			other, another := ownDaemonSet(), ownDaemonSet()
			other.Name, another.Namespace = "other", "shop"
			return s.Delete(other, another)
		}, ""},
		{"the node is tainted", func(s *kubeapi.Server) error {
			return kubeapi.Update(s, "", node, func(n *corev1.Node) {
				n.Spec.Taints = []corev1.Taint{{Key: "off", Effect: corev1.TaintEffectNoExecute}}
			})
		}, "taint off:NoExecute"},
		{"the node is deleted", func(s *kubeapi.Server) error { return s.Delete(ownNode()) }, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, m := membership(t, kubeapi.Config{})
			r.untilSeen(m)
			r.untilMember(m, "the DaemonSet is seen", func() bool { return m.Status()[0].Objects == 1 })
			if why, left := m.Left(); left {
				t.Fatalf("it left at once: %s", why)
			}
			r.must(tt.change(r.server))
			if tt.want == "" {
				if tt.name == "the node is deleted" {
					r.untilMember(m, "the node is gone", func() bool { return m.Status()[1].Objects == 0 })
				} else {
					r.untilSeen(m)
				}
				if why, left := m.Left(); left {
					t.Errorf("it left: %s", why)
				}
				return
			}
			r.untilMember(m, "it left", func() bool { _, left := m.Left(); return left })
			if why, _ := m.Left(); !strings.Contains(why, tt.want) {
				t.Errorf("it left because %q, want %q", why, tt.want)
			}
		})
	}
}

func TestADaemonSetThatWasNeverThereIsNotDeleted(t *testing.T) {
	r, m := membership(t, kubeapi.Config{}, func(s *kubeapi.Server) {
		if err := s.Delete(ownDaemonSet()); err != nil {
			t.Error(err)
		}
	})
	r.untilMember(m, "the list is there", func() bool { return m.Status()[0].Synced })
	if why, left := m.Left(); left {
		t.Errorf("it left: %s", why)
	}
	r.apply(ownDaemonSet())
	r.untilMember(m, "it is there", func() bool { return m.Status()[0].Objects == 1 })
	r.must(r.server.Delete(ownDaemonSet()))
	r.untilMember(m, "it left", func() bool { _, left := m.Left(); return left })
	r.apply(ownDaemonSet())
	r.untilMember(m, "it belongs to the next one of that name", func() bool { _, left := m.Left(); return !left })
}

func TestWhatCannotBeAskedChangesNothing(t *testing.T) {
	for name, away := range map[string]func(*kubeapi.Server){
		"the token is revoked": func(s *kubeapi.Server) { s.RevokeToken(); s.DropWatches() },
		"access is refused":    func(s *kubeapi.Server) { s.Deny("*", "daemonsets"); s.DropWatches() },
		"the server is away":   func(s *kubeapi.Server) { s.SetOutage(kubeapi.Unavailable) },
	} {
		t.Run(name, func(t *testing.T) {
			r, m := membership(t, kubeapi.Config{})
			r.untilSeen(m)
			r.untilMember(m, "the DaemonSet is seen", func() bool { return m.Status()[0].Objects == 1 })
			before := r.server.Count(daemonSets)
			away(r.server)
			r.must(r.server.Delete(ownDaemonSet())) // of which the watch cannot know
			// The second attempt is made after the answer to the first was taken in.
			r.must(r.server.WaitFor(r.patience(), before+2, daemonSets))
			if why, left := m.Left(); left {
				t.Errorf("it left: %s", why)
			}
		})
	}
	t.Run("the token is revoked after the event", func(t *testing.T) {
		r, m := membership(t, kubeapi.Config{})
		r.untilMember(m, "the DaemonSet is seen", func() bool { return m.Status()[0].Objects == 1 })
		r.must(r.server.Delete(ownDaemonSet()))
		r.untilMember(m, "it left", func() bool { _, left := m.Left(); return left })
		r.server.RevokeToken()
		r.server.DropWatches()
		if _, left := m.Left(); !left {
			t.Error("it forgot")
		}
	})
}

func TestTheWatchesAreLimitedToOneNameEach(t *testing.T) {
	r, m := membership(t, kubeapi.Config{})
	r.untilSeen(m)
	r.untilMember(m, "the DaemonSet is seen", func() bool { return m.Status()[0].Objects == 1 })
	for _, request := range r.server.Requests() {
		if want := map[string]string{"daemonsets": "metadata.name=pod2role", "nodes": "metadata.name=" + node}[request.Resource]; request.FieldSelector != want {
			t.Errorf("%s %s is selected by %q, want %q: a Role with resourceNames would refuse it", request.Verb, request.Path, request.FieldSelector, want)
		}
	}
}
