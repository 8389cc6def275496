package cluster

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// listTimeout bounds one list; watches are bounded by the server, after five to ten minutes.
const listTimeout = time.Minute

// feed is one reflector: a list, and a watch that goes on from it, of one resource.
type feed struct {
	resource  string // "pods", say
	reflector *cache.Reflector
	synced    chan struct{} // closed with the first list
	log       *logrus.Entry
	objects   func() int

	mu    sync.Mutex
	state WatchStatus
}

// WatchStatus is the state of one watch for the operator.
type WatchStatus struct {
	Resource  string    `json:"resource"`
	Synced    bool      `json:"synced"`              // the first list is there
	Objects   int       `json:"objects"`             // in the view
	Connected bool      `json:"connected"`           // a watch is open
	Since     time.Time `json:"since,omitzero"`      // when that last changed
	LastEvent time.Time `json:"lastEvent,omitzero"`  // of the last list, event or bookmark
	Version   string    `json:"version,omitempty"`   // the resource version that was reached
	Watches   uint64    `json:"watches"`             // how often a watch was opened
	Errors    uint64    `json:"errors"`              // how often a list or watch failed
	LastError string    `json:"lastError,omitempty"` // of the last failure, which may be over
	FailedAt  time.Time `json:"failedAt,omitzero"`
}

func (c *Cluster) podFeed() *feed {
	f := &feed{resource: "pods", objects: c.pods.count}
	selector := fields.OneTermEqualSelector("spec.nodeName", c.cfg.Node).String()
	pods := c.cfg.Client.CoreV1().Pods(metav1.NamespaceAll)
	f.start(c.log, &corev1.Pod{}, podStore{view: &c.pods, feed: f}, c.cfg.Client, &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
			opts.FieldSelector = selector
			return pods.List(ctx, opts)
		},
		WatchFuncWithContext: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
			opts.FieldSelector = selector
			return pods.Watch(ctx, opts)
		},
	})
	return f
}

func (c *Cluster) namespaceFeed() *feed {
	f := &feed{resource: "namespaces", objects: c.namespaces.count}
	namespaces := c.cfg.Metadata.Resource(corev1.SchemeGroupVersion.WithResource("namespaces"))
	f.start(c.log, &metav1.PartialObjectMetadata{}, namespaceStore{view: &c.namespaces, feed: f}, c.cfg.Metadata, &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
			return namespaces.List(ctx, opts)
		},
		WatchFuncWithContext: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
			return namespaces.Watch(ctx, opts)
		},
	})
	return f
}

// start makes the feed's reflector; run starts it.
func (f *feed) start(log *logrus.Entry, kind runtime.Object, store cache.ReflectorStore, client any, lw *cache.ListWatch) {
	f.synced = make(chan struct{})
	f.log = log.WithField("resource", f.resource)
	f.state.Resource = f.resource
	list, open := lw.ListWithContextFunc, lw.WatchFuncWithContext
	lw.ListWithContextFunc = func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
		ctx, cancel := context.WithTimeout(ctx, listTimeout)
		defer cancel()
		objects, err := list(ctx, opts)
		f.failed(err)
		return objects, err
	}
	lw.WatchFuncWithContext = func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
		w, err := open(ctx, opts)
		if err == nil {
			return f.connected(w), nil
		}
		streaming := opts.SendInitialEvents != nil
		if streaming && apierrors.IsInvalid(err) {
			return nil, err // a server that cannot stream lists: client-go goes back to a plain one
		}
		f.failed(err)
		if streaming && (utilnet.IsConnectionRefused(err) || apierrors.IsTooManyRequests(err)) {
			// At these errors alone client-go would wait where it does not see ctx end. At any other it tries a
			// plain list, which fails alike, and waits where it does.
			return nil, errors.New(err.Error())
		}
		return nil, err
	}
	f.reflector = cache.NewReflectorWithOptions(cache.ToListWatcherWithWatchListSemantics(lw, client), kind, store, cache.ReflectorOptions{
		Name: "pod2role/cluster",
		// By default the pause grows to between 30 and 60 s, for which a node would not know its new pods after an
		// outage of the API server. A list of this node's pods is cheap, so it ends at 5 to 7.5 s.
		Backoff: &wait.Backoff{Duration: 200 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: 16, Cap: 5 * time.Second},
	})
}

func (f *feed) run(ctx context.Context) { f.reflector.RunWithContext(ctx) }

func (f *feed) status() WatchStatus {
	f.mu.Lock()
	out := f.state
	f.mu.Unlock()
	out.Objects = f.objects()
	select {
	case <-f.synced:
		out.Synced = true
	default:
	}
	return out
}

// listed notes a list that the view has taken in.
func (f *feed) listed(version string) {
	f.progressed(version)
	select {
	case <-f.synced:
	default:
		close(f.synced)
	}
}

// progressed notes an event.
func (f *feed) progressed(version string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.state.Version, f.state.LastEvent = version, time.Now()
}

// failed notes the outcome of a list, or of opening a watch. An outage is logged once, when it begins.
func (f *feed) failed(err error) {
	if err == nil || errors.Is(err, context.Canceled) || apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		return // a version that is no longer remembered is no fault: client-go lists anew
	}
	f.mu.Lock()
	known := f.state.down()
	f.state.Errors++
	f.state.LastError, f.state.FailedAt = err.Error(), time.Now()
	f.mu.Unlock()
	if !known {
		f.log.WithError(err).Warn("API server cannot be asked; what was last known is used")
	}
}

// down says that the last attempt to list or watch failed.
func (s *WatchStatus) down() bool { return s.Errors > 0 && !s.Connected && s.FailedAt.After(s.Since) }

// connected notes that a watch is open, until the result is stopped.
func (f *feed) connected(w watch.Interface) watch.Interface {
	f.mu.Lock()
	recovered := f.state.down()
	f.state.Connected, f.state.Since = true, time.Now()
	f.state.Watches++
	c := &connection{Interface: w, feed: f, number: f.state.Watches}
	f.mu.Unlock()
	if recovered {
		f.log.Info("API server answers again")
	}
	return c
}

// connection is an open watch. The reflector stops every watch it has opened, whichever way it ended.
type connection struct {
	watch.Interface
	feed   *feed
	number uint64
}

// Stop implements watch.Interface.
func (c *connection) Stop() {
	c.Interface.Stop()
	c.feed.mu.Lock()
	defer c.feed.mu.Unlock()
	if c.feed.state.Watches == c.number && c.feed.state.Connected {
		c.feed.state.Connected, c.feed.state.Since = false, time.Now()
	}
}
