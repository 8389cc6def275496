package iptables

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/sirupsen/logrus"
	"golang.org/x/time/rate"
)

// Config says what to redirect.
type Config struct {
	// Backend is one of Backends; empty means "auto".
	Backend string
	// Metadata are the metadata service's addresses and ports; nil: DefaultMetadata. Each address is locked on every port.
	Metadata []netip.AddrPort
	// NodeAddrs are the addresses of this node that the proxy listens on, at most one of each family. A metadata address
	// of a family that is missing here is locked and not redirected.
	NodeAddrs []netip.Addr
	// CurrentNodeAddrs returns what NodeAddrs should be now; nil: they do not change. Run asks at each look at the rules, and
	// the rules follow. While it fails, they stay.
	CurrentNodeAddrs func(context.Context) ([]netip.Addr, error)
	// Port is the proxy's.
	Port uint16
	// Interface says where pods arrive: "auto" or "" (everywhere but lo), "eth0", "cali+" (a prefix), "!eth0", or a
	// comma-separated list.
	Interface string
	// Resync is how often Run looks at the rules when the kernel reports no change; zero: a minute.
	Resync time.Duration
	// Log is told of repairs; nil: nobody is.
	Log *logrus.Entry
	// Registerer gets the metrics pod2role_iptables_*; nil: nobody does.
	Registerer prometheus.Registerer
}

// DefaultMetadata returns where EC2 answers, by IPv4 and by IPv6:
// https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/instancedata-data-retrieval.html
func DefaultMetadata() []netip.AddrPort {
	return []netip.AddrPort{
		netip.MustParseAddrPort("169.254.169.254:80"),
		netip.MustParseAddrPort("[fd00:ec2::254]:80"),
	}
}

// Backends returns the names of the back ends. "auto" is nftables where the kernel can hold our rules there, else iptables;
// "iptables" is the kind of iptables that the host uses, of which the last two say outright which one.
func Backends() []string {
	return []string{"auto", "nftables", "iptables", "iptables-nft", "iptables-legacy"}
}

// Repairs, and looks at the rules because of a change, are limited to one a second after a burst, so that a peer that
// fights for the table costs a log line a second and not a core.
const (
	repairsPerSecond = 1
	repairBurst      = 10
)

// A Redirect is the pods' way to the proxy, and the lock on the way to the real service. Its methods may be called
// concurrently.
type Redirect struct {
	config  Config
	wanted  atomic.Pointer[plan] // only Apply and Run change it
	backend backend
	routing routing // nil: the node has none that matters
	limiter *rate.Limiter
	log     *logrus.Entry
	metrics *metrics
}

// New works out the rules. It does nothing to the kernel. The error names all that is wrong with the Config.
func New(c Config) (*Redirect, error) {
	if c.Metadata == nil {
		c.Metadata = DefaultMetadata()
	}
	if c.Backend == "" {
		c.Backend = "auto"
	}
	if !slices.Contains(Backends(), c.Backend) {
		return nil, fmt.Errorf("there is no back end %q: the ones there are: %s", c.Backend, strings.Join(Backends(), ", "))
	}
	p, err := newPlan(c)
	if err != nil {
		return nil, err
	}
	b, err := newBackend(c.Backend)
	if err != nil {
		return nil, err
	}
	r, err := newRedirect(c, p, b)
	if err != nil {
		return nil, err
	}
	r.routing = newRouting()
	return r, nil
}

func newRedirect(c Config, p plan, b backend) (*Redirect, error) {
	m, err := newMetrics(c.Registerer)
	if err != nil {
		return nil, err
	}
	if c.Resync <= 0 {
		c.Resync = time.Minute
	}
	if c.Log == nil {
		discard := logrus.New()
		discard.Out = io.Discard
		c.Log = logrus.NewEntry(discard)
	}
	r := &Redirect{
		config:  c,
		backend: b,
		limiter: rate.NewLimiter(repairsPerSecond, repairBurst),
		log:     c.Log,
		metrics: m,
	}
	r.wanted.Store(&p)
	return r, nil
}

// plan is what the kernel should hold now.
func (r *Redirect) plan() plan { return *r.wanted.Load() }

// String returns the rules in the syntax of nft(8), such that they can be fed to nft -f; or of iptables, as two inputs, one
// for iptables-restore --noflush and one for ip6tables-restore --noflush.
func (r *Redirect) String() string { return r.backend.render(r.plan()) }

// Apply makes the kernel hold the rules, in one transaction. Rules that are right already keep their counters; others of
// ours, of an older version say, are replaced. When there was nothing of ours before, connections that pods had opened to
// the real service are cut, see CutOver. Errors wrap ErrNotPermitted or ErrNotSupported where that is the reason.
func (r *Redirect) Apply(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("applying the redirect rules: %w", err)
	}
	r.followBranches()
	found, err := r.inspect()
	if err != nil {
		return fmt.Errorf("reading the redirect rules: %w", err)
	}
	if len(found.problems) > 0 {
		if err := r.put(); err != nil {
			return fmt.Errorf("applying the redirect rules: %w", err)
		}
	}
	r.metrics.complete.Set(1)
	if !found.present {
		n, err := r.CutOver(ctx)
		if err != nil { // the lock resets them all the same
			r.log.WithError(err).Warn("old connections to the metadata service were not cut")
		} else if n > 0 {
			r.log.WithField("connections", n).Info("old connections to the metadata service were cut")
		}
	}
	return nil
}

// Remove takes our rules out of the kernel. It is no error if there are none. From then on pods reach the real service.
func (r *Redirect) Remove(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("removing the redirect rules: %w", err)
	}
	err := r.backend.remove()
	if r.routing != nil {
		err = errors.Join(err, r.routing.apply(plan{}))
	}
	if err != nil {
		return fmt.Errorf("removing the redirect rules: %w", err)
	}
	r.metrics.complete.Set(0)
	return nil
}

// inspect reads what the kernel holds of ours.
func (r *Redirect) inspect() (inspection, error) {
	found, err := r.backend.inspect(r.plan())
	if err != nil || r.routing == nil {
		return found, err
	}
	problems, err := r.routing.inspect(r.plan())
	found.problems = append(found.problems, problems...)
	return found, err
}

// put makes the kernel hold the plan: the routing first, without which what is redirected would go astray.
func (r *Redirect) put() error {
	if r.routing != nil {
		if err := r.routing.apply(r.plan()); err != nil {
			return err
		}
	}
	return r.backend.apply(r.plan())
}

// Redirected reports whether a connection that the proxy accepted was meant for a metadata address. One that was dialled
// to the proxy's own port was not.
func (r *Redirect) Redirected(c net.Conn) (bool, error) {
	to, err := OriginalDestination(c)
	if err != nil {
		return false, ignoreNotRedirected(err)
	}
	for _, x := range r.plan().redirect {
		if x.metadata == to {
			return true, nil
		}
	}
	return false, nil
}
