package cluster_test

import (
	"context"
	"net/netip"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"pod2role/sandbox/kubeapi"
)

func TestADirectReadIsAheadOfTheWatch(t *testing.T) {
	r := synced(t, kubeapi.Config{})
	r.pod("v4", "10.0.0.9", "fd00::9")
	r.untilAt("10.0.0.9", "v4")
	r.server.FreezeWatches()
	r.pod("a", "10.0.0.1", "fd00::1")
	r.annotate("a", "reader")
	pod, err := r.ReadPod(r.patience(), "shop", "a")
	if err != nil || pod == nil || pod != r.Pod("a") || r.at("10.0.0.1") != "a" {
		t.Fatalf("by name: %+v, %v; view %q", pod, err, r.at("10.0.0.1"))
	}
	r.pod("b", "10.0.0.2", "fd00::2")
	for _, tt := range []struct{ addr, want, selector string }{
		{"10.0.0.2", "b", "spec.nodeName=node-1,status.podIP=10.0.0.2"},
		{"::ffff:10.0.0.2", "b", "spec.nodeName=node-1,status.podIP=10.0.0.2"},
		{"fd00::2", "b", "spec.nodeName=node-1"}, // the server selects by the first address only
		{"10.0.0.3", "", "spec.nodeName=node-1,status.podIP=10.0.0.3"},
	} {
		pods, err := r.ReadAddr(r.patience(), netip.MustParseAddr(tt.addr))
		if err != nil || uids(pods) != tt.want {
			t.Errorf("by address %s: %q, %v", tt.addr, uids(pods), err)
		}
		all := r.server.Requests()
		if got := all[len(all)-1].FieldSelector; got != tt.selector {
			t.Errorf("by address %s: asked for %q, want %q", tt.addr, got, tt.selector)
		}
	}
	if pod, err := r.ReadPod(r.patience(), "shop", "none"); pod != nil || err != nil {
		t.Errorf("by a name that nobody has: %v, %v", pod, err)
	}
	a := r.Pod("a")
	r.server.ThawWatches()
	r.fence()
	if r.Pod("a") != a {
		t.Error("the watch, which came after, replaced the pod by itself")
	}
	r.must(r.server.RemovePod("shop", "a"))
	r.untilAt("10.0.0.1", "")
}

func TestALateReadNeitherBringsAPodBackNorTurnsItBack(t *testing.T) {
	r := synced(t, kubeapi.Config{})
	r.pod("dead", "10.0.0.1")
	r.pod("alive", "10.0.0.2")
	r.untilAt("10.0.0.2", "alive")
	r.server.FreezeReads()
	r.must(r.server.RemovePod("shop", "dead"))
	r.annotate("alive", "reader")
	r.fence()
	pod, err := r.ReadPod(r.patience(), "shop", "dead")
	if pod != nil || err != nil {
		t.Errorf("by name: got %+v, %v", pod, err)
	}
	pods, err := r.ReadAddr(r.patience(), netip.MustParseAddr("10.0.0.1"))
	if len(pods) > 0 || err != nil {
		t.Errorf("by address: got %q, %v", uids(pods), err)
	}
	if r.at("10.0.0.1") != "" || r.Pod("dead") != nil {
		t.Error("the dead pod is back")
	}
	pod, err = r.ReadPod(r.patience(), "shop", "alive")
	if err != nil || pod == nil || pod.Annotations[role] != "reader" || pod != r.Pod("alive") {
		t.Errorf("got %+v, %v, want what the watch has shown", pod, err)
	}
}

func TestANameThatChangedHandsIsTheNewPods(t *testing.T) {
	r := synced(t, kubeapi.Config{})
	r.pod("first", "10.0.0.1")
	r.untilAt("10.0.0.1", "first")
	r.server.FreezeWatches()
	r.must(r.server.RemovePod("shop", "first"))
	again := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "first", UID: "second"}}
	r.must(r.server.StartPod(node, again))
	r.must(r.server.RunPod("shop", "first", netip.MustParseAddr("10.0.0.1")))
	if pod, err := r.ReadPod(r.patience(), "shop", "first"); err != nil || pod == nil || pod.UID != "second" {
		t.Fatalf("got %+v, %v", pod, err)
	}
	if r.at("10.0.0.1") != "second" || r.Pod("first") != nil {
		t.Errorf("%q have the address", r.at("10.0.0.1"))
	}
	r.server.ThawWatches()
	r.fence()
	if r.at("10.0.0.1") != "second" {
		t.Errorf("after the watch: %q have the address", r.at("10.0.0.1"))
	}
}

func TestADirectReadEndsWithItsContext(t *testing.T) {
	r := synced(t, kubeapi.Config{})
	r.server.SetOutage(kubeapi.Hang)
	defer r.server.SetOutage(kubeapi.Up)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := r.ReadAddr(ctx, netip.MustParseAddr("10.0.0.1")); err == nil || ctx.Err() == nil {
		t.Errorf("got %v", err)
	}
}
