package identity

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync"
	"time"

	"pod2role/mappings"
)

// world is a node with pods that come and go, a runtime that gives them addresses and takes them back, a kubelet that
// reports late, an API server that is away at times, and a watch that lags and breaks. It plays Records, View and the
// kernel, and knows the truth that the Resolver is held to. Time is virtual.
type world struct {
	start    time.Time
	recorded bool // the runtime keeps records
	attested bool // the kernel can be asked
	wake     func()

	mu   sync.Mutex
	free []netip.Addr // addresses that may be given

	truth   map[netip.Addr]*life     // :: address -> who has it
	records map[netip.Addr]Record    // :: address -> the runtime's record
	ends    map[netip.Addr]time.Time // :: address -> when it was last taken back
	taken   map[netip.Addr]taking    // :: address -> the end of the runtime's last record

	api       map[string]object // :: UID -> what the API server has
	version   int
	away      bool // the API server is
	backSince time.Time
	broken    bool // the watch is: events are lost until it lists anew

	view   map[string]object // :: UID -> what the watch has shown
	gone   map[string]bool   // :: UID -> the watch has shown its end
	synced bool
	ns     *mappings.Namespace // nil: the watch has not shown it
	nsAt   time.Time
}

// object is a pod at the API server or in the view.
type object struct {
	pod     *mappings.Pod
	version int
	since   time.Time // when it came there with the addresses it has
}

// life is one pod, as it really is.
type life struct {
	uid, name string
	addr      netip.Addr
	roles     map[string]bool // every role that it has ever asked for
	recorded  bool            // the runtime's record of it can be read
	ended     bool
}

func newWorld(recorded, attested bool) *world {
	now := time.Now()
	w := &world{
		start: now, recorded: recorded, attested: attested, backSince: now, synced: true,
		truth: map[netip.Addr]*life{}, records: map[netip.Addr]Record{}, ends: map[netip.Addr]time.Time{}, taken: map[netip.Addr]taking{},
		api: map[string]object{}, view: map[string]object{}, gone: map[string]bool{},
	}
	for i := range 4 {
		w.free = append(w.free, netip.AddrFrom4([4]byte{10, 0, 0, byte(i + 1)}))
	}
	return w
}

func between(r *rand.Rand, least, most time.Duration) time.Duration {
	return least + time.Duration(r.Int64N(int64(most-least)+1))
}

// later does f after a while, with the world locked, and then wakes who waits.
func (w *world) later(after time.Duration, f func()) {
	time.AfterFunc(after, func() {
		w.mu.Lock()
		f()
		w.mu.Unlock()
		w.wake()
	})
}

// change puts a pod into the API server, nil for its end, and has the watch tell of it after lag.
func (w *world) change(uid string, pod *mappings.Pod, lag time.Duration) {
	w.version++
	o := object{pod: pod, version: w.version, since: time.Now()}
	if pod == nil {
		delete(w.api, uid)
	} else {
		if old, ok := w.api[uid]; ok && len(old.pod.Addrs) == len(pod.Addrs) {
			o.since = old.since
		}
		w.api[uid] = o
	}
	w.later(lag, func() {
		if !w.broken && !w.away {
			w.show(uid, o)
		}
	})
}

// show is the watch telling the view of a pod; older news than the view's are dropped.
func (w *world) show(uid string, o object) {
	old, known := w.view[uid]
	switch {
	case w.gone[uid] || known && old.version >= o.version:
	case o.pod == nil:
		delete(w.view, uid)
		w.gone[uid] = true
	default:
		o.since = time.Now()
		if known && len(old.pod.Addrs) == len(o.pod.Addrs) {
			o.since = old.since
		}
		w.view[uid] = o
	}
}

// relist is the watch beginning anew.
func (w *world) relist() {
	if w.away {
		return
	}
	w.broken = false
	for uid := range w.view {
		if _, ok := w.api[uid]; !ok {
			delete(w.view, uid)
			w.gone[uid] = true
		}
	}
	for uid, o := range w.api {
		w.show(uid, o)
	}
}

// edit changes one pod at the API server, if it is still there.
func (w *world) edit(uid string, lag time.Duration, f func(*mappings.Pod)) {
	if o, ok := w.api[uid]; ok {
		pod := *o.pod
		f(&pod)
		w.change(uid, &pod, lag)
	}
}

func role(name string) map[string]string {
	return map[string]string{mappings.DefaultKeys().Role: name}
}

// Lookup implements Records.
func (w *world) Lookup(addr netip.Addr) (Record, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	record, ok := w.records[addr]
	return record, ok
}

// TakenBack implements Records.
func (w *world) TakenBack(addr netip.Addr) (string, time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, stands := w.records[addr]; stands {
		return "", time.Time{}
	}
	return w.taken[addr].uid, w.taken[addr].at
}

// Pod implements View, as do the following.
func (w *world) Pod(uid string) *mappings.Pod {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.view[uid].pod
}

func (w *world) PodsAt(addr netip.Addr) []*mappings.Pod {
	w.mu.Lock()
	defer w.mu.Unlock()
	return podsWith(w.view, addr)
}

func podsWith(objects map[string]object, addr netip.Addr) []*mappings.Pod {
	var pods []*mappings.Pod
	for _, o := range objects {
		if !o.pod.Finished && len(o.pod.Addrs) > 0 && o.pod.Addrs[0] == addr {
			pods = append(pods, o.pod)
		}
	}
	return pods
}

func (w *world) Namespace(string) *mappings.Namespace {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ns
}

func (w *world) Synced() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.synced
}

// read takes what match finds at the API server into the view, with the time that takes on both ways.
func (w *world) read(ctx context.Context, match func(*mappings.Pod) bool) ([]*mappings.Pod, error) {
	wait := func() error {
		w.mu.Lock()
		d := time.Duration(w.version%7+1) * 11 * time.Millisecond
		w.mu.Unlock()
		select {
		case <-time.After(d):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if err := wait(); err != nil {
		return nil, err
	}
	w.mu.Lock()
	if w.away {
		w.mu.Unlock()
		return nil, errors.New("connection refused")
	}
	found := map[string]object{}
	for uid, o := range w.api {
		if match(o.pod) {
			found[uid] = o
		}
	}
	w.mu.Unlock()
	if err := wait(); err != nil { // the answer is under way, and ages
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	var pods []*mappings.Pod
	for uid, o := range found {
		w.show(uid, o)
		if believed, ok := w.view[uid]; ok {
			pods = append(pods, believed.pod)
		}
	}
	return pods, nil
}

func (w *world) ReadPod(ctx context.Context, namespace, name string) (*mappings.Pod, error) {
	pods, err := w.read(ctx, func(p *mappings.Pod) bool { return p.Namespace == namespace && p.Name == name })
	if err != nil || len(pods) == 0 {
		return nil, err
	}
	return pods[0], nil
}

func (w *world) ReadAddr(ctx context.Context, addr netip.Addr) ([]*mappings.Pod, error) {
	return w.read(ctx, func(p *mappings.Pod) bool { return !p.Finished && len(p.Addrs) > 0 && p.Addrs[0] == addr })
}

// attest is the kernel: it knows behind which interface an address is, and when it was last taken back.
func (w *world) attest(c Claim) (Attestation, string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	has := w.truth[c.Addr]
	switch {
	case !w.attested:
		return Unavailable, "there is no kernel here"
	case c.Recorded && (has == nil || c.Interface != "veth-"+has.uid):
		return Refuted, "another interface"
	case !c.Recorded && c.Ready.Before(w.ends[c.Addr]):
		return Refuted, "too old"
	}
	return Confirmed, "fine"
}

// known says that a source knew all that is needed to answer l, and has known it for as long as a held request may
// take to find out. With the world locked.
func (w *world) known(l *life) (string, bool) {
	now := time.Now()
	needed := func(objects map[string]object, least time.Duration) bool {
		o, ok := objects[l.uid]
		if !ok || o.pod.Finished || now.Sub(o.since) < least {
			return false
		}
		return l.recorded || len(o.pod.Addrs) > 0
	}
	switch {
	case w.ns == nil || now.Sub(w.nsAt) < time.Millisecond:
		return "", false
	case needed(w.view, time.Millisecond):
		return "the view", true
	case !w.away && now.Sub(w.backSince) > 3*time.Second && needed(w.api, 3*time.Second):
		return "the API server", true
	}
	return "", false
}

// judge says what is wrong with an answer to asker, who may have ended meanwhile; empty: nothing.
func (w *world) judge(asker *life, addr netip.Addr, got *mappings.Decision, held time.Duration) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !asker.recorded && asker.ended && got.Pod != nil && got.Pod.UID != asker.uid {
		asker = w.truth[addr] // who can read the answer, if anybody: it goes to the address
	}
	if asker == nil {
		if got.Verdict == mappings.Allowed {
			return fmt.Sprintf("nobody has %v, and the answer is the role of %s", addr, got.Pod.UID)
		}
		return ""
	}
	switch got.Verdict {
	case mappings.Allowed:
		if got.Pod.UID != asker.uid || !asker.roles[got.Session.RoleARN] {
			return fmt.Sprintf("%s at %v was given the role %s of %s", asker.uid, addr, got.Session.RoleARN, got.Pod.UID)
		}
	case mappings.NoRole:
		if got.Pod.UID != asker.uid || len(asker.roles) > 0 {
			return fmt.Sprintf("%s at %v was told that %s has no role", asker.uid, addr, got.Pod.UID)
		}
	case mappings.Pending, mappings.Ambiguous:
		if by, known := w.known(asker); known && !asker.ended && held >= 5*time.Second {
			return fmt.Sprintf("%s at %v was held for %v in vain, and %s knows it: %s", asker.uid, addr, held, by, got.Reason)
		}
	case mappings.Undecided, mappings.Malformed, mappings.Forbidden, mappings.NotAPod, mappings.Busy:
		return fmt.Sprintf("%s at %v was told %v: %s", asker.uid, addr, got.Verdict, got.Reason)
	}
	return ""
}
