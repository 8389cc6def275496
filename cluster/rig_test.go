package cluster_test

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

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
