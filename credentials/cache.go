package credentials

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/sirupsen/logrus"
	"golang.org/x/time/rate"
)

// Config says how a [Cache] works. Only Assume is required. The thresholds are those of a session that lasts an hour
// or more; for a shorter one they shrink in proportion.
type Config struct {
	// Assume asks STS for a session. It must end when ctx does, make one call at a time, and return an [*Error] for
	// everything that it can classify. See [STS.Assume].
	Assume func(ctx context.Context, key Key, duration time.Duration) (*Session, error)

	// Duration is how long sessions are asked to last. Zero: an hour, the most that STS gives to a caller who uses a
	// role itself, as a node does: https://docs.aws.amazon.com/IAM/latest/UserGuide/id_roles.html#iam-term-role-chaining.
	Duration time.Duration

	// Floor is the life below which a session is not served while STS answers. Zero: 10 minutes, because botocore
	// stretches what it gets to 17 minutes and more.
	Floor time.Duration

	// Stop is the life below which a session is never served. Zero: a minute.
	Stop time.Duration

	// Timeout bounds one call to STS, and how long Get waits. Zero: 10 seconds.
	Timeout time.Duration

	// RevocationGrace is how long a session is still served after STS has refused to renew it. Zero: not at all.
	RevocationGrace time.Duration

	// NegativeTTL is the shortest time for which a refusal is remembered; the longest is four times that. Zero: 15
	// seconds.
	NegativeTTL time.Duration

	// Limit and Burst bound the calls to STS of the whole node. Zero: 10 per second, 20 at once.
	Limit rate.Limit
	Burst int

	// StartJitter spreads the first pre-fetches, lest a thousand nodes that start together call STS together. Requests
	// that pods wait for do not wait for it. Zero: 2 seconds; negative: none.
	StartJitter time.Duration

	// OnChange, if set, is told when STS begins to give a role no session for a reason that will not pass by itself
	// (Refused, Invalid, OwnIdentity; err is an [*Error]), when the reason becomes another, and, with a nil error, when
	// the role is right again. It is called in order for one key, but concurrently for several, and must not block.
	OnChange func(key Key, err error)

	Log        *logrus.Entry         // nil: discard
	Registerer prometheus.Registerer // nil: no metrics are registered
}

// idle is how long a session stays that no owner refers to and nobody asks for, if it lasts an hour.
const idle = 10 * time.Minute

// Cache holds one session per [Key]. Its methods are safe for concurrent use.
type Cache struct {
	cfg     Config
	log     *logrus.Entry
	limiter *rate.Limiter
	metrics *metrics
	kick    chan struct{} // wakes Run; holds one

	mu      sync.Mutex
	entries map[Key]*entry
	owners  map[string]Key // :: owner -> the key it refers to
	started time.Time      // when Run began; zero before
	stopped bool           // Run has ended
	landed  chan struct{}  // closed and replaced whenever a flight lands
	flights uint64         // flights that landed so far: orders their outcomes where the clock cannot
	success uint64         // flights as it was when one last succeeded
}

// New returns a cache that is empty and at rest until Run is called.
func New(cfg Config) (*Cache, error) {
	if cfg.Assume == nil {
		return nil, errors.New("a credential cache needs a way to assume roles")
	}
	cfg.Duration = cmp.Or(cfg.Duration, time.Hour)
	cfg.Floor = cmp.Or(cfg.Floor, 10*time.Minute)
	cfg.Stop = cmp.Or(cfg.Stop, time.Minute)
	cfg.Timeout = cmp.Or(cfg.Timeout, 10*time.Second)
	cfg.NegativeTTL = cmp.Or(cfg.NegativeTTL, 15*time.Second)
	cfg.Limit = cmp.Or(cfg.Limit, 10)
	cfg.Burst = cmp.Or(cfg.Burst, 20)
	cfg.StartJitter = max(0, cmp.Or(cfg.StartJitter, 2*time.Second))
	switch {
	case min(cfg.Duration, cfg.Timeout, cfg.NegativeTTL) < 0 || cfg.RevocationGrace < 0:
		return nil, errors.New("a credential cache cannot work with a negative length of time")
	case cfg.Limit < 0 || cfg.Burst < 1:
		return nil, fmt.Errorf("a credential cache cannot work with %v calls per second, %d at once", cfg.Limit, cfg.Burst)
	case cfg.Stop < 0 || cfg.Stop > cfg.Floor || cfg.Floor > 25*time.Minute:
		return nil, fmt.Errorf("the thresholds of a session's life must rise from %s (never served below) over %s (renewed before it is served) to 25m (what renewal keeps above)", cfg.Stop, cfg.Floor)
	}
	if cfg.Log == nil {
		discard := logrus.New()
		discard.SetOutput(io.Discard)
		cfg.Log = logrus.NewEntry(discard)
	}
	c := &Cache{
		cfg:     cfg,
		log:     cfg.Log,
		limiter: rate.NewLimiter(cfg.Limit, cfg.Burst),
		kick:    make(chan struct{}, 1),
		entries: make(map[Key]*entry),
		owners:  make(map[string]Key),
		landed:  make(chan struct{}),
	}
	var err error
	if c.metrics, err = newMetrics(cfg.Registerer, c); err != nil {
		return nil, err
	}
	return c, nil
}

// Refer says that the owner (any string that is its own: a pod's UID) will want the key: a session is fetched ahead
// and kept renewed. An owner refers to one key; to refer to another lets go of the first.
func (c *Cache) Refer(owner string, key Key) {
	now := time.Now()
	c.mu.Lock()
	defer c.wake()
	defer c.mu.Unlock()
	old, ok := c.owners[owner]
	if ok && old == key {
		return
	}
	if ok {
		c.release(old, now)
	}
	c.owners[owner] = key
	c.entry(key, now).refs++
}

// Release says that the owner is gone. A session to which nobody refers any more is dropped once it is not asked for.
func (c *Cache) Release(owner string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if key, ok := c.owners[owner]; ok {
		delete(c.owners, owner)
		c.release(key, time.Now())
	}
}

func (c *Cache) release(key Key, now time.Time) {
	e := c.entry(key, now)
	e.refs--
	e.used = now
}

// Settle waits until STS has been asked once for every key that is referred to, whatever it said, or until ctx ends,
// whose error it then returns.
func (c *Cache) Settle(ctx context.Context) error {
	for {
		c.mu.Lock()
		settled, landed := true, c.landed
		for _, e := range c.entries {
			settled = settled && (e.refs == 0 || e.session != nil || e.failures > 0)
		}
		c.mu.Unlock()
		if settled {
			return nil
		}
		select {
		case <-landed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// wake makes Run look at the entries again.
func (c *Cache) wake() {
	select {
	case c.kick <- struct{}{}:
	default:
	}
}
