package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/sirupsen/logrus"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"

	"pod2role/mappings"
)

// Config is what a Cluster needs.
type Config struct {
	Client   kubernetes.Interface // for pods
	Metadata metadata.Interface   // for namespaces
	Node     string               // the name of this node

	// AnnotationKeys are the annotations, of pods and of namespaces, that are kept. A change of another is none.
	AnnotationKeys []string

	// OnPod and OnNamespace are called after the view has changed, each one call at a time and in the order of the
	// changes, but at the same time as the other; before is nil for what is new, after for what is gone. They may ask the view, but must neither block nor call
	// ReadPod or ReadAddr. nil: nobody asks.
	OnPod       func(before, after *mappings.Pod)
	OnNamespace func(before, after *mappings.Namespace)

	Log        *logrus.Entry         // nil: discard
	Registerer prometheus.Registerer // nil: no metrics
}

// Cluster is a live view of one node's pods and of all namespaces. It is safe for concurrent use.
type Cluster struct {
	cfg        Config
	log        *logrus.Entry
	pods       podView
	namespaces namespaceView
	feeds      [2]*feed // of pods, of namespaces
	reads      *prometheus.CounterVec
}

// New returns a Cluster that knows nothing until Run.
func New(cfg Config) (*Cluster, error) {
	c := &Cluster{cfg: cfg, log: cfg.Log}
	if c.log == nil {
		logger := logrus.New()
		logger.SetOutput(io.Discard)
		c.log = logrus.NewEntry(logger)
	}
	var problems []error
	if cfg.Client == nil || cfg.Metadata == nil {
		problems = append(problems, errors.New("watching the cluster needs clients for pods and for metadata"))
	}
	if cfg.Node == "" {
		problems = append(problems, errors.New("the name of this node is not known, so its pods cannot be watched"))
	}
	if len(problems) > 0 {
		return nil, errors.Join(problems...)
	}
	c.pods = newPodView(cfg)
	c.namespaces = newNamespaceView(cfg)
	c.feeds = [2]*feed{c.podFeed(), c.namespaceFeed()}
	if err := c.register(cfg.Registerer); err != nil {
		return nil, err
	}
	return c, nil
}

// Run keeps the view until ctx ends. It does not end while the API server is away: it says so once, and keeps trying.
func (c *Cluster) Run(ctx context.Context) error {
	var running sync.WaitGroup
	for _, f := range c.feeds {
		running.Go(func() { f.run(ctx) })
	}
	running.Wait()
	return nil
}

// WaitForSync waits until the pods and the namespaces that existed at the start are known. Its error says what is
// missing, and why.
func (c *Cluster) WaitForSync(ctx context.Context) error {
	for _, f := range c.feeds {
		select {
		case <-f.synced:
		case <-ctx.Done():
			if last := f.status().LastError; last != "" {
				return fmt.Errorf("waiting for the %s: %w; the last attempt ended with: %s", f.resource, context.Cause(ctx), last)
			}
			return fmt.Errorf("waiting for the %s: %w", f.resource, context.Cause(ctx))
		}
	}
	return nil
}

// Synced says that the pods and the namespaces that existed at the start are known. It stays true from then on.
func (c *Cluster) Synced() bool {
	for _, f := range c.feeds {
		select {
		case <-f.synced:
		default:
			return false
		}
	}
	return true
}

// Pod returns the pod of this node with the UID, nil if none was seen. It does not allocate.
func (c *Cluster) Pod(uid string) *mappings.Pod { return c.pods.byUID(uid) }

// Pods returns all pods of this node, sorted by namespace and name.
func (c *Cluster) Pods() []*mappings.Pod { return c.pods.all() }

// Namespace returns the namespace, nil if it was not seen. It does not allocate.
func (c *Cluster) Namespace(name string) *mappings.Namespace { return c.namespaces.byName(name) }

// Status returns the state of the watches: of pods, then of namespaces.
func (c *Cluster) Status() []WatchStatus {
	var out []WatchStatus
	for _, f := range c.feeds {
		out = append(out, f.status())
	}
	return out
}
