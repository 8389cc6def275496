package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/sirupsen/logrus"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// MembershipConfig is what a Membership needs.
type MembershipConfig struct {
	Client          kubernetes.Interface
	Namespace, Name string // of the DaemonSet
	Node            string
	OnChange        func()        // what Left says may have changed; nil: nobody asks
	Log             *logrus.Entry // nil: discard
}

// Membership knows whether a node still belongs to a DaemonSet. It goes by what its watches on the two objects have
// shown, and asks nobody: at an uninstallation the service account goes together with the DaemonSet, so that whoever asks
// when it is told to stop gets 401 and learns nothing. It is safe for concurrent use.
type Membership struct {
	cfg   MembershipConfig
	feeds [2]*feed // of the DaemonSet, of the node

	mu        sync.Mutex
	seen      bool              // the DaemonSet was there once: one that never was is a wrong name and not an uninstallation
	daemonSet *appsv1.DaemonSet // nil: not there
	node      *nodeFacts        // nil: not there
}

// NewMembership returns a Membership that knows nothing until Run.
func NewMembership(cfg MembershipConfig) (*Membership, error) {
	if cfg.Client == nil || cfg.Namespace == "" || cfg.Name == "" || cfg.Node == "" {
		return nil, errors.New("watching the own DaemonSet needs a client, its namespace and name, and the node's name")
	}
	if cfg.Log == nil {
		logger := logrus.New()
		logger.SetOutput(io.Discard)
		cfg.Log = logrus.NewEntry(logger)
	}
	m := &Membership{cfg: cfg}
	daemonSets, nodes := cfg.Client.AppsV1().DaemonSets(cfg.Namespace), cfg.Client.CoreV1().Nodes()
	m.feeds[0] = watchOne(cfg, "daemonsets", cfg.Name, &appsv1.DaemonSet{}, m.setDaemonSet,
		func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return daemonSets.List(ctx, o)
		}, daemonSets.Watch)
	m.feeds[1] = watchOne(cfg, "nodes", cfg.Node, &corev1.Node{}, m.setNode,
		func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return nodes.List(ctx, o) }, nodes.Watch)
	return m, nil
}

// Run watches until ctx ends. It does not end while the API server is away or refuses: it says so once, keeps trying, and
// what was last seen stands.
func (m *Membership) Run(ctx context.Context) error {
	var running sync.WaitGroup
	for _, f := range m.feeds {
		running.Go(func() { f.run(ctx) })
	}
	running.Wait()
	return nil
}

// Left says that the node no longer belongs to the DaemonSet, and why: it was deleted, is being deleted, or would not
// keep a pod on the node. What is not known for certain is false.
func (m *Membership) Left() (why string, left bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case !m.seen:
		return "", false
	case m.daemonSet == nil:
		return fmt.Sprintf("the DaemonSet %s/%s was deleted", m.cfg.Namespace, m.cfg.Name), true
	case m.daemonSet.DeletionTimestamp != nil:
		return fmt.Sprintf("the DaemonSet %s/%s is being deleted", m.cfg.Namespace, m.cfg.Name), true
	case m.node == nil:
		return "", false
	}
	why = m.node.refuses(&m.daemonSet.Spec.Template.Spec)
	return why, why != ""
}

// Status returns the state of the watches: of the DaemonSet, then of the node.
func (m *Membership) Status() []WatchStatus {
	return []WatchStatus{m.feeds[0].status(), m.feeds[1].status()}
}

// setDaemonSet takes in the DaemonSet as it is now, nil if it is not there. Every call replaces the object.
func (m *Membership) setDaemonSet(obj runtime.Object) {
	daemonSet, _ := obj.(*appsv1.DaemonSet)
	m.mu.Lock()
	m.seen = m.seen || daemonSet != nil
	m.daemonSet = daemonSet
	m.mu.Unlock()
	m.changed()
}

func (m *Membership) setNode(obj runtime.Object) {
	node, _ := obj.(*corev1.Node)
	var facts *nodeFacts
	if node != nil {
		facts = &nodeFacts{name: node.Name, labels: node.Labels, taints: node.Spec.Taints}
	}
	m.mu.Lock()
	m.node = facts
	m.mu.Unlock()
	m.changed()
}

func (m *Membership) changed() {
	if m.cfg.OnChange != nil {
		m.cfg.OnChange()
	}
}

// watchOne makes a feed of a single object, chosen by its name: a Role may then be limited to that name
// (https://kubernetes.io/docs/reference/access-authn-authz/rbac/#referring-to-resources).
func watchOne(cfg MembershipConfig, resource, name string, kind runtime.Object, set func(runtime.Object),
	list func(context.Context, metav1.ListOptions) (runtime.Object, error), open func(context.Context, metav1.ListOptions) (watch.Interface, error),
) *feed {
	store := &oneStore{name: name, set: set}
	f := &feed{resource: resource, objects: store.count}
	store.feed = f
	selector := fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
	f.start(cfg.Log, kind, store, cfg.Client, &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
			opts.FieldSelector = selector
			return list(ctx, opts)
		},
		WatchFuncWithContext: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
			opts.FieldSelector = selector
			return open(ctx, opts)
		},
	})
	return f
}

// oneStore is what client-go's reflector of a single object writes to.
type oneStore struct {
	name string
	set  func(runtime.Object) // nil: it is not there
	feed *feed

	mu    sync.Mutex
	there bool
}

var (
	_ cache.ReflectorStore         = &oneStore{}
	_ cache.ReflectorBookmarkStore = &oneStore{}
)

func (s *oneStore) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.there {
		return 1
	}
	return 0
}

func (s *oneStore) put(obj runtime.Object) {
	s.mu.Lock()
	s.there = obj != nil
	s.mu.Unlock()
	s.set(obj)
}

// named is a Kubernetes object.
type named interface {
	runtime.Object
	metav1.Object
}

// Add implements cache.ReflectorStore.
func (s *oneStore) Add(obj any) error { return s.Update(obj) }

// Update implements cache.ReflectorStore.
func (s *oneStore) Update(obj any) error {
	o, ok := obj.(named)
	if !ok {
		return fmt.Errorf("watching %s: got a %T", s.feed.resource, obj)
	}
	s.feed.progressed(o.GetResourceVersion())
	if o.GetName() == s.name { // whoever answers may not know the field selector
		s.put(o)
	}
	return nil
}

// Delete implements cache.ReflectorStore.
func (s *oneStore) Delete(obj any) error {
	o, ok := obj.(named)
	if !ok {
		return fmt.Errorf("watching %s: got a deleted %T", s.feed.resource, obj)
	}
	s.feed.progressed(o.GetResourceVersion())
	if o.GetName() == s.name {
		s.put(nil)
	}
	return nil
}

// Replace implements cache.ReflectorStore.
func (s *oneStore) Replace(list []any, version string) error {
	var found runtime.Object
	for _, obj := range list {
		o, ok := obj.(named)
		if !ok {
			return fmt.Errorf("listing %s: got a %T", s.feed.resource, obj)
		}
		if o.GetName() == s.name {
			found = o
		}
	}
	s.put(found)
	s.feed.listed(version)
	return nil
}

// Bookmark implements cache.ReflectorBookmarkStore.
func (s *oneStore) Bookmark(version string) error {
	s.feed.progressed(version)
	return nil
}

// Resync implements cache.ReflectorStore.
func (*oneStore) Resync() error { return nil }
