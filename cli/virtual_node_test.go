package cli

import (
	"net/netip"
	"sync"
	"testing"
	"time"

	"golang.org/x/time/rate"

	"pod2role/credentials"
	"pod2role/identity"
	"pod2role/mappings"
)

// virtualNode is a node in virtual time: pods that come and go, a runtime that gives them addresses and notes it, a
// kernel, a kubelet that reports late, an API server that is away at times, a watch that lags and breaks, and STS. It
// plays everything that a daemon's joined logic sees of the world, and knows the truth that every answer is held to.
type virtualNode struct {
	kind
	t       *testing.T
	started time.Time
	daemon  *daemon
	sts     *virtualSTS

	telling   [2]sync.Mutex // of pods, of namespaces: held from before the view changes until the daemon has been told
	mu        sync.Mutex
	lives     map[string]*life                // :: UID -> pod, as it really is
	permitted map[string]*history[permission] // :: namespace -> what it allows
	decided   map[string]decided              // :: UID -> the last decision about it that identity had made

	free    []netip.Addr // addresses that may be given
	has     map[netip.Addr]*life
	records map[netip.Addr]identity.Record
	taken   map[netip.Addr]taking    // :: address -> the end of its last record
	ends    map[netip.Addr]time.Time // :: address -> when the kernel saw it taken back last

	version       int
	api, view     map[string]object      // :: UID -> pod, at the API server and as the watch has shown it
	apiNS, viewNS map[string]permissions // :: name -> namespace, likewise
	gone          map[string]time.Time   // :: UID -> when the view showed its end
	listed        int                    // version of the last list that the view has taken in
	synced        bool
	syncedAt      time.Time
	away          bool // the API server is
	backAt        time.Time
	broken        bool // the watch is: what happens is lost until it lists anew
}

// kind is what a node has beside the API server.
type kind struct {
	recorded bool // the runtime keeps records
	attested bool // the kernel can be asked
}

type decided struct {
	pod      *mappings.Pod
	ns       *mappings.Namespace
	decision *mappings.Decision
	at       time.Time
}

type taking struct {
	uid string
	at  time.Time
}

// object is a pod at the API server or in the view.
type object struct {
	pod     *mappings.Pod
	version int
	since   time.Time // when it came there with the addresses it has
}

// permissions is a namespace at the API server or in the view.
type permissions struct {
	ns      *mappings.Namespace
	version int
}

// newVirtualNode returns a node with a number of addresses. The daemon keeps its sessions as cfg says.
func newVirtualNode(t *testing.T, k kind, addrs int, cfg credentials.Config) *virtualNode {
	t.Helper()
	n := &virtualNode{
		kind: k, t: t, started: time.Now(), lives: map[string]*life{}, permitted: map[string]*history[permission]{}, decided: map[string]decided{},
		has: map[netip.Addr]*life{}, records: map[netip.Addr]identity.Record{}, taken: map[netip.Addr]taking{}, ends: map[netip.Addr]time.Time{},
		api: map[string]object{}, view: map[string]object{}, apiNS: map[string]permissions{}, viewNS: map[string]permissions{},
		gone: map[string]time.Time{}, backAt: time.Now(),
	}
	for i := range addrs {
		n.free = append(n.free, netip.AddrFrom4([4]byte{10, 0, 0, byte(i + 1)}))
	}
	n.sts = &virtualSTS{node: n, length: cfg.Duration, roles: map[credentials.Key]*role{}}
	cfg.Assume = n.sts.assume
	decider, err := mappings.NewDecider(mappings.Rules{Keys: mappings.DefaultKeys(), BaseARN: demoBaseARN, Node: demoNode, NamespaceRestrictions: true})
	if err != nil {
		t.Fatal(err)
	}
	sessions, err := credentials.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	config := identity.Config{
		View: n, Decide: n.decide, MaxHeld: 1 << 20, MaxHeldPerSource: 1 << 20,
		Reads: identity.ReadLimit{Total: rate.Inf, TotalBurst: 1, PerSource: rate.Inf, PerSourceBurst: 1},
	}
	if k.recorded {
		config.Records = n
	}
	if k.attested {
		config.Attest = n.attest
	}
	resolver, err := identity.New(config)
	if err != nil {
		t.Fatal(err)
	}
	n.daemon = &daemon{decider: decider, sessions: sessions, identity: resolver, referrals: &referrals{decider: decider, sessions: sessions, view: n}}
	return n
}

// decide is what identity asks the decider for.
func (n *virtualNode) decide(pod *mappings.Pod, ns *mappings.Namespace) *mappings.Decision {
	d := n.daemon.decider.Decide(pod, ns)
	n.locked(func() { n.decided[pod.UID] = decided{pod, ns, d, time.Now()} })
	return d
}

// locked does f with the node locked.
func (n *virtualNode) locked(f func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	f()
}

// sync is the first list.
func (n *virtualNode) sync() {
	n.locked(func() { n.synced, n.syncedAt = true, time.Now() })
	n.relist()
	n.daemon.wake()
}

// deaf says that what happens now does not reach the view.
func (n *virtualNode) deaf() bool { return n.broken || n.away || !n.synced }

// put puts a pod into the API server, nil for its end, and has the watch tell of it after lag. n is locked.
func (n *virtualNode) put(l *life, pod *mappings.Pod, lag time.Duration) {
	n.version++
	o := object{pod: pod, version: n.version, since: time.Now()}
	if old, ok := n.api[l.uid]; ok && pod != nil && len(old.pod.Addrs) == len(pod.Addrs) {
		o.since = old.since
	}
	if n.api[l.uid] = o; pod == nil {
		delete(n.api, l.uid)
		// If the view never shows it, nobody closes its history. What is under way may still show it.
		time.AfterFunc(2*time.Second, func() {
			n.locked(func() {
				if n.view[l.uid].pod == nil {
					l.wishes.show(o.version, true)
				}
			})
		})
	}
	time.AfterFunc(lag, func() {
		lost := false
		n.locked(func() { lost = n.deaf() })
		if !lost {
			n.show(l, o)
		}
	})
}

// show is the watch, or a direct read, telling the view of a pod; older news than the view's are dropped.
func (n *virtualNode) show(l *life, o object) {
	n.telling[0].Lock()
	defer n.telling[0].Unlock()
	n.mu.Lock()
	old, known := n.view[l.uid]
	stale := !n.gone[l.uid].IsZero() || known && old.version >= o.version || !known && o.version <= n.listed && n.api[l.uid].pod == nil
	switch {
	case stale:
	case o.pod == nil:
		delete(n.view, l.uid)
		n.gone[l.uid] = time.Now()
		l.wishes.show(o.version, true)
	default:
		o.since = time.Now()
		if known && len(old.pod.Addrs) == len(o.pod.Addrs) {
			o.since = old.since
		}
		n.view[l.uid] = o
		l.wishes.show(o.version, false)
	}
	n.mu.Unlock()
	if !stale && (known || o.pod != nil) {
		n.daemon.podChanged(old.pod, o.pod)
	}
}

// showNamespace is the watch telling the view of a namespace.
func (n *virtualNode) showNamespace(p permissions) {
	n.telling[1].Lock()
	defer n.telling[1].Unlock()
	n.mu.Lock()
	old := n.viewNS[p.ns.Name]
	if stale := old.version >= p.version; stale {
		n.mu.Unlock()
		return
	}
	n.viewNS[p.ns.Name] = p
	n.permitted[p.ns.Name].show(p.version, false)
	n.mu.Unlock()
	n.daemon.namespaceChanged(old.ns, p.ns)
}

// relist is the watch beginning anew.
func (n *virtualNode) relist() {
	n.mu.Lock()
	if n.away || !n.synced {
		n.mu.Unlock()
		return
	}
	n.broken, n.listed = false, n.version
	var pods []func()
	for uid, o := range n.api {
		pods = append(pods, func() { n.show(n.lives[uid], o) })
	}
	for uid := range n.view {
		if _, ok := n.api[uid]; !ok {
			o := object{version: n.version}
			pods = append(pods, func() { n.show(n.lives[uid], o) })
		}
	}
	var namespaces []permissions
	for _, p := range n.apiNS {
		namespaces = append(namespaces, p)
	}
	n.mu.Unlock()
	var lists sync.WaitGroup
	lists.Go(func() {
		for _, p := range namespaces {
			n.showNamespace(p)
		}
	})
	for _, show := range pods {
		show()
	}
	lists.Wait()
}

// allow changes what a namespace allows, at the API server.
func (n *virtualNode) allow(name string, allowed permission, lag time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.version++
	p := permissions{ns: &mappings.Namespace{Name: name, Annotations: allowed.annotations()}, version: n.version}
	n.apiNS[name] = p
	if n.permitted[name] == nil {
		n.permitted[name] = &history[permission]{}
	}
	n.permitted[name].add(allowed, n.version)
	time.AfterFunc(lag, func() {
		lost := false
		n.locked(func() { lost = n.deaf() })
		if !lost {
			n.showNamespace(p)
		}
	})
}
