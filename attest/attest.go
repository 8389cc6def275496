package attest

import (
	"net/netip"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/sirupsen/logrus"
)

// Config says where to report to.
type Config struct {
	// OnChange is called after the kernel's state changed in a way that may turn a refuted or unavailable claim into
	// a confirmed one; nil: nobody is told. It must not block.
	OnChange func()
	// Log may be nil.
	Log *logrus.Entry
	// Registerer may be nil.
	Registerer prometheus.Registerer
}

// Attest follows the kernel's state. Make one with [New]; until it runs, every answer is [Unavailable].
type Attest struct {
	config   Config
	results  [Refuted + 1]prometheus.Counter // by Result
	restarts prometheus.Counter

	ready chan struct{} // closed after the first complete reading
	once  sync.Once

	notifications notifications

	mu    sync.RWMutex
	table *table
}

// New returns an Attest that knows nothing yet.
func New(c Config) (*Attest, error) {
	results := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "pod2role_attest_claims_total", Help: "Claims to an address that were compared with the kernel's state, by result.",
	}, []string{"result"})
	a := &Attest{
		config: c, ready: make(chan struct{}), table: newTable(),
		restarts: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "pod2role_attest_resyncs_total", Help: "Times that notifications of the kernel were lost and its state was read anew.",
		}),
	}
	for r := range a.results {
		a.results[r] = results.WithLabelValues(Result(r).String())
	}
	if c.Registerer != nil {
		for _, m := range []prometheus.Collector{results, a.restarts} {
			if err := c.Registerer.Register(m); err != nil {
				return nil, err
			}
		}
	}
	return a, nil
}

// Check judges a claim from memory, and says why in half a sentence.
func (a *Attest) Check(c Claim) (Result, string) {
	a.mu.RLock()
	result, why := a.table.check(c)
	a.mu.RUnlock()
	a.results[result].Inc()
	return result, why
}

// MovedSince says, from memory, whether an address went from one living interface to another since a connection from
// it was accepted, or shortly before, or whether that cannot be known: somebody answers for the address of another, and
// whose requests the connection brings cannot be told. An address that was given to another pod has not moved, since
// the first one's interface is gone. To hear of what has happened already, call [Attest.CatchUp] first.
func (a *Attest) MovedSince(addr netip.Addr, accepted time.Time) bool {
	a.mu.RLock()
	defer a.mu.RUnlock()
	return a.table.movedSince(addr, accepted)
}

// Route returns the name of the interface to which this one address is routed, from memory; empty: there is no such
// route.
func (a *Attest) Route(addr netip.Addr) string {
	a.mu.RLock()
	defer a.mu.RUnlock()
	index, ok := a.table.routes[addr]
	if !ok {
		return ""
	}
	return a.table.links[index].name
}

// Ready is closed after the kernel's state has been read once.
func (a *Attest) Ready() <-chan struct{} { return a.ready }

// change applies f to the table and tells who wants to know.
func (a *Attest) change(f func(t *table, now time.Time)) {
	a.mu.Lock()
	f(a.table, time.Now())
	a.mu.Unlock()
	if a.config.OnChange != nil {
		a.config.OnChange()
	}
}
