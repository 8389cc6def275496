package cluster_test

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"pod2role/cluster"
	"pod2role/mappings"
	"pod2role/sandbox/kubeapi"
)

const (
	node     = "node-1"
	role     = "iam.amazonaws.com/role"
	patience = 30 * time.Second // only a failure takes that long
)

// rig is a Cluster at work on a server on loopback.
type rig struct {
	*cluster.Cluster
	t       *testing.T
	server  *kubeapi.Server
	changed chan struct{}
	stop    func() // ends Run and waits for it
	fences  int

	mu   sync.Mutex
	told []string
}

func start(t *testing.T, cfg kubeapi.Config, before ...func(*kubeapi.Server)) *rig {
	t.Helper()
	r := &rig{t: t, server: kubeapi.New(cfg), changed: make(chan struct{}, 1)}
	r.apply(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}})
	for _, f := range before {
		f(r.server)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	r.must(err)
	r.background(func(ctx context.Context) error { return r.server.Run(ctx, ln) })
	clients, err := cluster.ConnectTo(&rest.Config{Host: "http://" + ln.Addr().String()}, "test")
	r.must(err)
	r.Cluster, err = cluster.New(cluster.Config{
		Client: clients.Core, Metadata: clients.Metadata, Node: node, AnnotationKeys: []string{role},
		OnPod: func(before, after *mappings.Pod) { r.tell(describe(before) + " > " + describe(after)) },
		OnNamespace: func(before, after *mappings.Namespace) {
			r.tell(fmt.Sprintf("namespace %v > %v", before != nil, after != nil))
		},
	})
	r.must(err)
	r.stop = r.background(r.Run)
	return r
}

func synced(t *testing.T, cfg kubeapi.Config, before ...func(*kubeapi.Server)) *rig {
	t.Helper()
	r := start(t, cfg, before...)
	r.must(r.WaitForSync(r.patience()))
	return r
}

// background runs f until the test ends, or until the returned function is called.
func (r *rig) background(f func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := f(ctx); err != nil {
			r.t.Errorf("ended with %v", err)
		}
	})
	stop = func() { cancel(); running.Wait() }
	r.t.Cleanup(stop)
	return stop
}

func (r *rig) patience() context.Context {
	ctx, cancel := context.WithTimeout(r.t.Context(), patience)
	r.t.Cleanup(cancel)
	return ctx
}

func (r *rig) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) tell(what string) {
	r.mu.Lock()
	r.told = append(r.told, what)
	r.mu.Unlock()
	select {
	case r.changed <- struct{}{}:
	default:
	}
}

// until waits for a change of the view after which the condition holds.
func (r *rig) until(what string, ok func() bool) {
	r.t.Helper()
	timeout := time.After(patience)
	for !ok() {
		select {
		case <-r.changed:
		case <-timeout:
			r.t.Fatalf("waiting until %s: %+v", what, r.Status())
		}
	}
}

// fence waits until the watch has shown every pod that was written so far.
func (r *rig) fence() {
	r.t.Helper()
	r.fences++
	name := fmt.Sprintf("fence-%d", r.fences)
	r.pod(name)
	r.until(name+" is seen", func() bool {
		return slices.ContainsFunc(r.Pods(), func(p *mappings.Pod) bool { return p.Name == name })
	})
}

func (r *rig) apply(objs ...kubeapi.Object) {
	r.t.Helper()
	r.must(r.server.Apply(objs...))
}

// pod creates a pod on the node, its UID being its name, and reports the addresses, if any.
func (r *rig) pod(name string, addrs ...string) {
	r.t.Helper()
	r.must(r.server.StartPod(node, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID(name)}}))
	if len(addrs) > 0 {
		var all []netip.Addr
		for _, a := range addrs {
			all = append(all, netip.MustParseAddr(a))
		}
		r.must(r.server.RunPod("shop", name, all...))
	}
}

func (r *rig) annotate(name, value string) {
	r.t.Helper()
	r.must(kubeapi.Update(r.server, "shop", name, func(p *corev1.Pod) { p.Annotations = map[string]string{role: value} }))
}

// at returns the UIDs of the pods with the address, space-separated.
func (r *rig) at(addr string) string { return uids(r.PodsAt(netip.MustParseAddr(addr))) }

func (r *rig) untilAt(addr, want string) {
	r.t.Helper()
	r.until(addr+" leads to "+want, func() bool { return r.at(addr) == want })
}

func uids(pods []*mappings.Pod) string {
	var out []string
	for _, p := range pods {
		out = append(out, p.UID)
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

func describe(p *mappings.Pod) string {
	if p == nil {
		return "-"
	}
	return fmt.Sprintf("%s%v", p.UID, p.Addrs)
}

// forms are the ways in which a server may list.
func forms() map[string]kubeapi.Config {
	return map[string]kubeapi.Config{"streamed lists": {}, "plain lists": {NoWatchList: true}}
}

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

func TestWhatWasKnownStaysWhileTheServerIsAwayAndIsPutRightAfter(t *testing.T) {
	for name, cfg := range forms() {
		for outage, how := range map[string]kubeapi.Outage{"refuse": kubeapi.Refuse, "reset": kubeapi.Reset, "unavailable": kubeapi.Unavailable} {
			t.Run(name+"/"+outage, func(t *testing.T) {
				r := synced(t, cfg)
				r.pod("stays", "10.0.0.1")
				r.pod("goes", "10.0.0.2")
				r.untilAt("10.0.0.2", "goes")
				r.server.SetOutage(how)
				if _, err := r.ReadPod(r.patience(), "shop", "stays"); err == nil || !strings.Contains(err.Error(), `reading pod "stays"`) {
					t.Errorf("direct read: %v", err)
				}
				if r.at("10.0.0.1") != "stays" || r.Namespace("shop") == nil || !r.Synced() {
					t.Error("what was known has been forgotten")
				}
				r.must(r.server.RemovePod("shop", "goes"))
				r.pod("comes", "10.0.0.2")
				r.server.Compact()
				r.server.SetOutage(kubeapi.Up)
				r.untilAt("10.0.0.2", "comes")
				if r.at("10.0.0.1") != "stays" || r.Pod("goes") != nil {
					t.Error("not put right")
				}
			})
		}
	}
}

func TestWatchesThatAreCutGoOn(t *testing.T) {
	r := synced(t, kubeapi.Config{})
	for range 3 {
		r.must(r.server.WaitFor(r.patience(), 1, kubeapi.Watching("pods")))
		r.server.DropWatches()
		r.fence()
	}
	if s := r.Status()[0]; s.Resource != "pods" || s.Watches < 2 || s.Objects != 3 || !s.Synced || s.LastEvent.IsZero() {
		t.Errorf("status %+v", s)
	}
}

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

func TestWhatIsMissingForSyncIsSaidWithItsCause(t *testing.T) {
	r := start(t, kubeapi.Config{}, func(s *kubeapi.Server) { s.Deny("*", "namespaces") })
	r.must(r.server.WaitFor(r.patience(), 2, func(q kubeapi.Request) bool { return q.Resource == "namespaces" && q.Code == 403 }))
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	err := r.WaitForSync(ctx)
	if err == nil || !strings.Contains(err.Error(), "waiting for the namespaces: context deadline exceeded; the last attempt ended with: namespaces is forbidden") {
		t.Errorf("got %v", err)
	}
	if r.Synced() {
		t.Error("synced without the namespaces")
	}
}

func TestRunEndsAtOnceAlsoWhileTheServerIsAway(t *testing.T) {
	for name, cfg := range forms() {
		t.Run(name, func(t *testing.T) {
			r := synced(t, cfg)
			r.server.SetOutage(kubeapi.Refuse)
			for r.Status()[0].Errors < 4 { // until the pauses have grown
				select {
				case <-time.After(10 * time.Millisecond):
				case <-t.Context().Done():
				}
			}
			began := time.Now()
			r.stop()
			if took := time.Since(began); took > time.Second {
				t.Errorf("took %v", took)
			}
		})
	}
}

func TestConnectReadsAKubeconfigAndItsToken(t *testing.T) {
	certificate, authority, err := kubeapi.SelfSigned()
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, server: kubeapi.New(kubeapi.Config{Token: "s3cret", Certificate: &certificate})}
	r.pod("a")
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	r.must(err)
	r.background(func(ctx context.Context) error { return r.server.Run(ctx, ln) })
	data, err := kubeapi.Kubeconfig("https://"+ln.Addr().String(), "s3cret", authority)
	r.must(err)
	path := filepath.Join(t.TempDir(), "config")
	r.must(os.WriteFile(path, data, 0o600))
	clients, err := cluster.Connect(path, "1.2.3")
	r.must(err)
	r.Cluster, err = cluster.New(cluster.Config{Client: clients.Core, Metadata: clients.Metadata, Node: node})
	r.must(err)
	r.background(r.Run)
	r.must(r.WaitForSync(r.patience()))
	if r.Pod("a") == nil {
		t.Error("the pod is not known")
	}
	if got := r.server.Requests()[0].UserAgent; got != "pod2role/1.2.3" {
		t.Errorf("asks as %q", got)
	}
	if _, err := cluster.Connect(filepath.Join(t.TempDir(), "none"), ""); err == nil || !strings.Contains(err.Error(), "reading kubeconfig") {
		t.Errorf("a kubeconfig that does not exist: %v", err)
	}
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	if _, err := cluster.Connect("", ""); err == nil || !strings.Contains(err.Error(), "give a kubeconfig") {
		t.Errorf("outside of a cluster: %v", err)
	}
}

func TestNewRefusesWhatItCannotWorkWith(t *testing.T) {
	_, err := cluster.New(cluster.Config{})
	if err == nil || !strings.Contains(err.Error(), "clients") || !strings.Contains(err.Error(), "name of this node") {
		t.Errorf("got %v", err)
	}
}

func TestTheMetricsTellOfTheWatches(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	clients, err := cluster.ConnectTo(&rest.Config{Host: "http://127.0.0.1:1"}, "test")
	if err != nil {
		t.Fatal(err)
	}
	cfg := cluster.Config{Client: clients.Core, Metadata: clients.Metadata, Node: node, Registerer: registry}
	if _, err := cluster.New(cfg); err != nil {
		t.Fatal(err)
	}
	const want = `
# HELP pod2role_cluster_watch_connected Whether a watch is open.
# TYPE pod2role_cluster_watch_connected gauge
pod2role_cluster_watch_connected{resource="namespaces"} 0
pod2role_cluster_watch_connected{resource="pods"} 0
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "pod2role_cluster_watch_connected"); err != nil {
		t.Error(err)
	}
	if _, err := cluster.New(cfg); err == nil {
		t.Error("New registered the metrics twice")
	}
}
