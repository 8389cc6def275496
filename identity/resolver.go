package identity

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net/netip"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/sirupsen/logrus"
	"golang.org/x/time/rate"

	"pod2role/mappings"
)

// Config says where a [Resolver] looks, and how long. Zero durations and numbers stand for the defaults.
type Config struct {
	Records Records // nil: there are none
	View    View
	// Attest asks the kernel whether a claim holds, and why in half a sentence; nil: attestation is not available.
	Attest func(Claim) (Attestation, string)
	// Decide is [mappings.Decider.Decide]: the same pointers give the same Decision.
	Decide func(*mappings.Pod, *mappings.Namespace) *mappings.Decision

	// Ready says that the records have been read once. Before that no address is judged, for a record not yet read may
	// be the one that counts. nil: always.
	Ready func() bool
	// IsNodeAddr says that addr is one of the node's own, with which no pod can be told apart; nil: none is.
	IsNodeAddr func(addr netip.Addr) bool
	// IsForeign says that addr, which no source knows, is known not to be a pod's: a container of the host's, say.
	// Such a request is not held; nil: nothing is known.
	IsForeign func(addr netip.Addr) bool

	// Hold is how long a request waits for its pod to become known; default 5 s.
	Hold time.Duration
	// MaxHeld and MaxHeldPerSource bound the requests that wait, in all (default 1024) and from one address (default
	// 64). What is beyond is Busy at once.
	MaxHeld, MaxHeldPerSource int
	// Reads bounds the direct reads of the API server.
	Reads ReadLimit

	Log        *logrus.Entry         // nil: discard
	Registerer prometheus.Registerer // nil: no metrics
}

// ReadLimit bounds direct reads, in all (default 20/s, burst 50) and for the requests of one address (default 2/s,
// burst 4).
type ReadLimit struct {
	Total          rate.Limit
	TotalBurst     int
	PerSource      rate.Limit
	PerSourceBurst int
}

// Resolver tells which pod is asking. It is safe for concurrent use.
type Resolver struct {
	config  Config
	metrics metrics

	bindMu   sync.RWMutex
	bindings map[netip.Addr]binding // :: address -> the last answer given to it, for as long as it stays the same

	mu        sync.Mutex
	wake      chan struct{}                // closed by Wake; nil: nobody waits
	held      map[*Held]struct{}           // requests that wait
	perSource map[netip.Addr]int           // :: address -> how many of them
	reads     map[question]*reading        // :: question -> its direct read in flight
	limit     *rate.Limiter                // of direct reads
	limits    map[netip.Addr]*rate.Limiter // :: address -> of direct reads for it
}

// New checks config and returns its Resolver.
func New(config Config) (*Resolver, error) {
	if config.View == nil {
		return nil, errors.New("identity needs a view of the cluster")
	}
	if config.Decide == nil {
		return nil, errors.New("identity needs a decider")
	}
	config.Hold = cmp.Or(config.Hold, 5*time.Second)
	config.MaxHeld = cmp.Or(config.MaxHeld, 1024)
	config.MaxHeldPerSource = cmp.Or(config.MaxHeldPerSource, 64)
	config.Reads = ReadLimit{
		Total: cmp.Or(config.Reads.Total, 20), TotalBurst: cmp.Or(config.Reads.TotalBurst, 50),
		PerSource: cmp.Or(config.Reads.PerSource, 2), PerSourceBurst: cmp.Or(config.Reads.PerSourceBurst, 4),
	}
	if config.Log == nil {
		discard := logrus.New()
		discard.SetOutput(io.Discard)
		config.Log = logrus.NewEntry(discard)
	}
	m, err := newMetrics(config.Registerer)
	if err != nil {
		return nil, err
	}
	return &Resolver{
		config: config, metrics: m, bindings: map[netip.Addr]binding{},
		held: map[*Held]struct{}{}, perSource: map[netip.Addr]int{}, reads: map[question]*reading{},
		limit: rate.NewLimiter(config.Reads.Total, config.Reads.TotalBurst), limits: map[netip.Addr]*rate.Limiter{},
	}, nil
}

// Resolve returns what the pod behind addr may have; ingress is the index of the interface that its connection came in
// by, 0 where that is not known. If the pod, or what decides of it, is not known yet, Resolve waits for it, until Hold
// has passed or ctx ends: the verdict is then Pending or Ambiguous. It never returns nil. Where everything is known and
// nothing has changed, it allocates nothing.
func (r *Resolver) Resolve(ctx context.Context, addr netip.Addr, ingress int) *mappings.Decision {
	addr = addr.Unmap().WithZone("")
	if s := r.look(addr, ingress, nil); settled(s.decision) {
		return s.decision
	}
	return r.hold(ctx, addr, ingress)
}

// settled says that waiting would not change the decision.
func settled(d *mappings.Decision) bool {
	return d.Verdict != mappings.Pending && d.Verdict != mappings.Ambiguous && d.Verdict != mappings.Undecided
}
