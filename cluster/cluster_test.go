package cluster_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"pod2role/sandbox/kubeapi"
)

func TestAPodIsSeenFromItsBindingToItsEnd(t *testing.T) {
	for name, cfg := range forms() {
		t.Run(name, func(t *testing.T) {
			r := synced(t, cfg)
			r.pod("a")
			r.until("the pod is seen", func() bool { return r.Pod("a") != nil })
			r.must(r.server.SandboxReady("shop", "a", netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::1")))
			r.untilAt("10.0.0.1", "a")
			if r.at("fd00::1") != "a" || r.at("::ffff:10.0.0.1") != "a" || r.Pod("a").SandboxReady.IsZero() {
				t.Errorf("got %+v", r.Pod("a"))
			}
			r.must(r.server.TerminatePod("shop", "a"))
			r.until("the pod is being deleted", func() bool { return r.Pod("a").Deleting })
			if r.at("10.0.0.1") != "a" {
				t.Error("a pod that is being deleted has lost its address")
			}
			r.must(r.server.RemovePod("shop", "a"))
			r.untilAt("10.0.0.1", "")
			if r.Pod("a") != nil {
				t.Error("the pod is still there")
			}
			r.stop()
			want := "- > a[]; a[] > a[10.0.0.1 fd00::1]; a[10.0.0.1 fd00::1] > a[10.0.0.1 fd00::1]; a[10.0.0.1 fd00::1] > -"
			if got := strings.Join(slices.DeleteFunc(r.told, func(s string) bool { return strings.HasPrefix(s, "namespace") }), "; "); got != want {
				t.Errorf("told %s\nwant %s", got, want)
			}
		})
	}
}

func TestFinishedPodsAndThoseOnTheNodesNetworkHaveNoAddress(t *testing.T) {
	r := synced(t, kubeapi.Config{})
	r.pod("done", "10.0.0.1")
	r.untilAt("10.0.0.1", "done")
	r.must(r.server.FinishPod("shop", "done", corev1.PodSucceeded))
	r.untilAt("10.0.0.1", "")
	host := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "host", UID: "host"}, Spec: corev1.PodSpec{HostNetwork: true}}
	r.must(r.server.StartPod(node, host))
	r.must(r.server.RunPod("shop", "host", netip.MustParseAddr("10.0.0.2")))
	r.fence()
	if got := r.at("10.0.0.2"); got != "" {
		t.Errorf("the node's address leads to %q", got)
	}
	if r.Pod("done") == nil || !r.Pod("done").Finished || r.Pod("host") == nil || !r.Pod("host").HostNetwork {
		t.Errorf("not known by UID: %+v, %+v", r.Pod("done"), r.Pod("host"))
	}
}

func TestOnlyTheNodesPodsAreWatched(t *testing.T) {
	r := synced(t, kubeapi.Config{}, func(s *kubeapi.Server) {
		_ = s.StartPod("node-2", &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "theirs"}})
	})
	r.fence()
	if len(r.Pods()) != 1 {
		t.Errorf("got %d pods, want the fence alone", len(r.Pods()))
	}
	for _, req := range r.server.Requests() {
		if req.UserAgent != "pod2role/test" || !strings.Contains(req.Accept, "protobuf") {
			t.Errorf("%s asks as %q for %q", req.Path, req.UserAgent, req.Accept)
		}
		if req.Resource == "pods" && req.FieldSelector != "spec.nodeName="+node {
			t.Errorf("%s %s asks for pods %q", req.Verb, req.Path, req.FieldSelector)
		}
	}
	if pod, err := r.ReadPod(r.patience(), "shop", "theirs"); pod != nil || err != nil {
		t.Errorf("read another node's pod: %v, %v", pod, err)
	}
}

func TestAPodKeepsItsPointerWhileNothingMattersChanges(t *testing.T) {
	r := synced(t, kubeapi.Config{})
	r.pod("a", "10.0.0.1")
	r.untilAt("10.0.0.1", "a")
	r.fence()
	before := r.Pod("a")
	r.must(kubeapi.Update(r.server, "shop", "a", func(p *corev1.Pod) {
		p.Labels, p.Annotations = map[string]string{"x": "y"}, map[string]string{"other": "z"}
	}))
	r.fence()
	if r.Pod("a") != before {
		t.Error("a label and a foreign annotation replaced the pod")
	}
	r.annotate("a", "reader")
	r.until("the annotation is seen", func() bool { return r.Pod("a").Annotations[role] == "reader" })
	if before.Annotations != nil {
		t.Error("a pod that was handed out has been modified")
	}
}

func TestNamespacesComeChangeAndGo(t *testing.T) {
	for name, cfg := range forms() {
		t.Run(name, func(t *testing.T) {
			r := synced(t, cfg)
			if r.Namespace("shop") == nil || r.Namespace("late") != nil {
				t.Fatalf("got %v, %v", r.Namespace("shop"), r.Namespace("late"))
			}
			late := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "late", Annotations: map[string]string{role: "a", "other": "b"}}}
			r.apply(late)
			r.until("it is seen", func() bool { return r.Namespace("late") != nil })
			if got := r.Namespace("late").Annotations; len(got) != 1 || got[role] != "a" {
				t.Errorf("annotations %v", got)
			}
			r.must(kubeapi.Update(r.server, "", "late", func(n *corev1.Namespace) { n.Annotations[role] = "c" }))
			r.until("its annotation has changed", func() bool { return r.Namespace("late").Annotations[role] == "c" })
			r.must(r.server.Delete(late))
			r.until("it is gone", func() bool { return r.Namespace("late") == nil })
		})
	}
}
