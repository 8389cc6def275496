package cli

import (
	"context"
	"net/netip"
	"sync"
	"testing"
	"time"

	"pod2role/credentials"
	"pod2role/mappings"
)

// onePod is a view of one pod, which ends while somebody who has read of it is about to act upon it.
type onePod struct {
	pod  *mappings.Pod
	ns   *mappings.Namespace
	read func() // called when the namespace is looked up
}

func (v *onePod) Pods() []*mappings.Pod { return []*mappings.Pod{v.pod} }

func (v *onePod) Namespace(string) *mappings.Namespace {
	if v.read != nil {
		v.read()
	}
	return v.ns
}

// newReferrals returns referrals with what they need; STS gives every session.
func newReferrals(t *testing.T, view podView) *referrals {
	t.Helper()
	keys := mappings.DefaultKeys()
	decider, err := mappings.NewDecider(mappings.Rules{Keys: keys, BaseARN: demoBaseARN, Node: demoNode, NamespaceRestrictions: true})
	if err != nil {
		t.Fatal(err)
	}
	sessions, err := credentials.New(credentials.Config{Assume: func(_ context.Context, key credentials.Key, d time.Duration) (*credentials.Session, error) {
		return &credentials.Session{Key: key, Obtained: time.Now(), Expiration: time.Now().Add(d)}, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	return &referrals{decider: decider, sessions: sessions, view: view}
}

// referrers is how many pods are referred to sessions.
func (r *referrals) referrers() int {
	n := 0
	for _, s := range r.sessions.States() {
		n += s.Referrers
	}
	return n
}

func shopPod(role string) *mappings.Pod {
	return &mappings.Pod{
		UID: "uid-web", Namespace: "shop", Name: "web", Annotations: map[string]string{mappings.DefaultKeys().Role: role},
		Addrs: []netip.Addr{netip.MustParseAddr("10.0.0.1")},
	}
}

func shopAllowing(patterns string) *mappings.Namespace {
	return &mappings.Namespace{Name: "shop", Annotations: map[string]string{mappings.DefaultKeys().AllowedRoles: patterns}}
}

func TestAPodIsReferredToItsSessionAsLongAsItMayHaveIt(t *testing.T) {
	view := &onePod{pod: shopPod("shop-web"), ns: shopAllowing(`["shop-*"]`)}
	r := newReferrals(t, view)
	r.podChanged(nil, view.pod)
	if n := r.referrers(); n != 1 {
		t.Fatalf("%d pods are referred to sessions, want 1", n)
	}
	before := view.ns
	for _, tt := range []struct {
		name string
		ns   *mappings.Namespace
		want int
	}{
		{"forbidden", shopAllowing(`["other"]`), 0}, {"allowed again", before, 1}, {"without its namespace", nil, 0}, {"with it", before, 1},
	} {
		old := view.ns
		view.ns = tt.ns
		if r.namespaceChanged(old, tt.ns); r.referrers() != tt.want {
			t.Errorf("%s: %d pods are referred to sessions, want %d", tt.name, r.referrers(), tt.want)
		}
	}
	finished := *view.pod
	finished.Finished = true
	if r.podChanged(view.pod, &finished); r.referrers() != 0 {
		t.Error("a pod that has finished keeps a session")
	}
	if r.podChanged(&finished, view.pod); r.referrers() != 1 {
		t.Error("the pod has no session")
	}
	if r.podChanged(view.pod, nil); r.referrers() != 0 {
		t.Error("a pod that is gone keeps a session")
	}
}

// News of pods and of namespaces come from two watches.
func TestAPodThatEndsWhileItsNamespaceIsJudgedIsLetGoOf(t *testing.T) {
	view := &onePod{pod: shopPod("shop-web"), ns: shopAllowing(`["shop-*"]`)}
	r := newReferrals(t, view)
	r.podChanged(nil, view.pod)
	var ended sync.WaitGroup
	view.read = func() {
		view.read = nil
		if r.mu.TryLock() { // nothing keeps the end from being taken in at this moment
			r.mu.Unlock()
			r.podChanged(view.pod, nil)
			return
		}
		ended.Go(func() { r.podChanged(view.pod, nil) })
	}
	r.namespaceChanged(view.ns, view.ns)
	ended.Wait()
	if n := r.referrers(); n != 0 {
		t.Errorf("the session of a pod that is gone is kept for %d pods", n)
	}
}
