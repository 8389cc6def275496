package proxy

import (
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
)

// How many log lines an address may cause: a burst, and then one each second.
const (
	linesPerSecond = 1
	linesBurst     = 20
)

// source is what is kept of one client address.
type source struct {
	connections int // guarded by sources.mu
	requests    atomic.Int32
	upstream    *rate.Limiter // requests to the real service
	lines       *rate.Limiter // log lines
	omitted     atomic.Int64  // log lines that were not written since the last that was
}

// sources counts what each client address takes, so that none takes another's share.
type sources struct {
	max, maxPerSource int
	rate              float64

	mu    sync.Mutex
	all   map[netip.Addr]*source // :: client address -> what it takes
	open  int                    // connections of all sources
	swept time.Time
}

func newSources(cfg *Config) *sources {
	return &sources{
		max: cfg.MaxConnections, maxPerSource: cfg.MaxConnectionsPerSource, rate: cfg.UpstreamRate,
		all: map[netip.Addr]*source{},
	}
}

// connect counts a connection from addr. If there are too many, it returns nil and why.
func (s *sources) connect(addr netip.Addr, now time.Time) (*source, turnedAway) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sweep(now)
	if s.open >= s.max {
		return nil, tooManyConnections
	}
	src := s.all[addr]
	if src == nil {
		src = &source{
			upstream: rate.NewLimiter(rate.Limit(s.rate), max(1, int(4*s.rate))),
			lines:    rate.NewLimiter(linesPerSecond, linesBurst),
		}
		s.all[addr] = src
	}
	if src.connections >= s.maxPerSource {
		return nil, tooManyFromSource
	}
	src.connections++
	s.open++
	return src, ""
}

// disconnect ends what connect began.
func (s *sources) disconnect(src *source) {
	s.mu.Lock()
	defer s.mu.Unlock()
	src.connections--
	s.open--
}

// connections returns how many connections are open.
func (s *sources) connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open
}

// sweep forgets, once a minute, the addresses that have no connection and whose limits have recovered: forgetting them
// with their last connection would let a client reset its limits by connecting anew.
func (s *sources) sweep(now time.Time) {
	if now.Sub(s.swept) < time.Minute {
		return
	}
	s.swept = now
	for addr, src := range s.all {
		if src.connections == 0 && full(src.upstream, now) && full(src.lines, now) {
			delete(s.all, addr)
		}
	}
}

func full(l *rate.Limiter, now time.Time) bool { return l.TokensAt(now) >= float64(l.Burst()) }
