package identity

import (
	"context"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"pod2role/mappings"
)

const base = "arn:aws:iam::123456789012:role/"

var (
	addr1 = netip.MustParseAddr("10.0.0.1")
	addr2 = netip.MustParseAddr("10.0.0.2")
)

// fakeRecords are records that a test writes.
type fakeRecords struct {
	mu      sync.Mutex
	records map[netip.Addr]Record
	taken   map[netip.Addr]taking
}

// taking is the end of a record.
type taking struct {
	uid string
	at  time.Time
}

func (f *fakeRecords) Lookup(addr netip.Addr) (Record, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	record, ok := f.records[addr]
	return record, ok
}

func (f *fakeRecords) TakenBack(addr netip.Addr) (string, time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.taken[addr].uid, f.taken[addr].at
}

// takeBack removes the record of addr.
func (f *fakeRecords) takeBack(addr netip.Addr, at time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.taken = map[netip.Addr]taking{addr: {f.records[addr].UID, at}}
	delete(f.records, addr)
}

func (f *fakeRecords) put(addr netip.Addr, pod *mappings.Pod) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.records == nil {
		f.records = map[netip.Addr]Record{}
	}
	f.records[addr] = Record{UID: pod.UID, Namespace: pod.Namespace, Name: pod.Name, Interface: "veth-" + pod.UID}
}

// fakeView is a view that a test fills, before an API server that a test plays.
type fakeView struct {
	mu         sync.Mutex
	pods       map[string]*mappings.Pod // :: UID -> pod
	at         map[netip.Addr][]*mappings.Pod
	namespaces map[string]*mappings.Namespace
	unsynced   bool
	asked      []string // the direct reads so far

	readPod  func(ctx context.Context, namespace, name string) (*mappings.Pod, error)
	readAddr func(ctx context.Context, addr netip.Addr) ([]*mappings.Pod, error)
}

func newView(pods ...*mappings.Pod) *fakeView {
	f := &fakeView{
		pods: map[string]*mappings.Pod{}, at: map[netip.Addr][]*mappings.Pod{},
		namespaces: map[string]*mappings.Namespace{"shop": {Name: "shop"}},
	}
	f.put(pods...)
	return f
}

func (f *fakeView) put(pods ...*mappings.Pod) {
	for _, pod := range pods {
		f.remove(pod.UID)
		f.mu.Lock()
		f.pods[pod.UID] = pod
		if !pod.HostNetwork && !pod.Finished {
			for _, addr := range pod.Addrs {
				f.at[addr] = append(slices.Clip(f.at[addr]), pod)
			}
		}
		f.mu.Unlock()
	}
}

func (f *fakeView) remove(uid string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.pods, uid)
	for addr, pods := range f.at {
		f.at[addr] = slices.DeleteFunc(slices.Clone(pods), func(p *mappings.Pod) bool { return p.UID == uid })
	}
}

func (f *fakeView) Pod(uid string) *mappings.Pod {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.pods[uid]
}

func (f *fakeView) PodsAt(addr netip.Addr) []*mappings.Pod {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.at[addr]
}

func (f *fakeView) Namespace(name string) *mappings.Namespace {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.namespaces[name]
}

func (f *fakeView) Synced() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return !f.unsynced
}

func (f *fakeView) ReadPod(ctx context.Context, namespace, name string) (*mappings.Pod, error) {
	f.mu.Lock()
	f.asked = append(f.asked, namespace+"/"+name)
	f.mu.Unlock()
	if f.readPod == nil {
		return nil, nil
	}
	return f.readPod(ctx, namespace, name)
}

func (f *fakeView) ReadAddr(ctx context.Context, addr netip.Addr) ([]*mappings.Pod, error) {
	f.mu.Lock()
	f.asked = append(f.asked, addr.String())
	f.mu.Unlock()
	if f.readAddr == nil {
		return nil, nil
	}
	return f.readAddr(ctx, addr)
}

func (f *fakeView) reads() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.asked)
}

// newPod returns a pod whose role has its name.
func newPod(name string, addrs ...netip.Addr) *mappings.Pod {
	return &mappings.Pod{
		UID: "uid-" + name, Namespace: "shop", Name: name, Addrs: addrs,
		Annotations: map[string]string{mappings.DefaultKeys().Role: name},
	}
}

func newResolver(t testing.TB, config Config) *Resolver {
	t.Helper()
	if config.Decide == nil {
		decider, err := mappings.NewDecider(mappings.Rules{Keys: mappings.DefaultKeys(), BaseARN: base, Node: "node-1"})
		if err != nil {
			t.Fatal(err)
		}
		config.Decide = decider.Decide
	}
	r, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// check compares a decision with what was expected: the verdict and, where allowed, the pod.
func check(t *testing.T, got *mappings.Decision, verdict mappings.Verdict, pod *mappings.Pod) {
	t.Helper()
	if got.Verdict != verdict {
		t.Errorf("verdict %v, want %v: %s", got.Verdict, verdict, got.Reason)
	}
	if got.Reason == "" || len(got.Trail) == 0 {
		t.Errorf("a %v decision has the reason %q and the trail %v", got.Verdict, got.Reason, got.Trail)
	}
	if pod != nil && (got.Pod != pod || got.Verdict == mappings.Allowed && got.Session.RoleARN != base+pod.Name) {
		t.Errorf("decision for pod %v and role %q, want pod %s", got.Pod, got.Session.RoleARN, pod.Name)
	}
	if verdict != mappings.Allowed && got.Session != (mappings.Session{}) {
		t.Errorf("a %v decision has the session %v", got.Verdict, got.Session)
	}
}

// clean checks that nobody waits and nothing is being read.
func clean(t *testing.T, r *Resolver) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.held) != 0 || len(r.perSource) != 0 || len(r.reads) != 0 {
		t.Errorf("left behind: %d held, %d sources, %d reads", len(r.held), len(r.perSource), len(r.reads))
	}
}
