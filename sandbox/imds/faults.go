package imds

import (
	"cmp"
	"context"
	"net/http"
	"time"

	"golang.org/x/time/rate"

	"pod2role/sandbox/loopback"
)

// Outage is a way of not being there.
type Outage int

const (
	// NoOutage answers.
	NoOutage Outage = iota
	// Closed closes each connection without an answer.
	Closed
	// Unavailable answers 503.
	Unavailable
)

// Faults is what goes wrong at present. The zero value: nothing. They apply in the order of the fields, to every
// request, after it was recorded.
type Faults struct {
	// Latency passes before each answer, LatencyOf beside it (nil: none). A client that leaves ends it.
	Latency   time.Duration
	LatencyOf func(Hit) time.Duration

	Outage Outage
	// EarlyBoot answers 401 to everything, as the service may for a moment after an instance's start.
	EarlyBoot bool
	// Throttle is how many requests a second are answered, with a burst of as many (at least one); the others get
	// ThrottleStatus (default 503: EC2 does not document it). 0: no limit.
	Throttle       float64
	ThrottleStatus int
	// Hook says which status a request is answered with instead of what it asked for; 0: none.
	Hook func(Hit) int
}

type faultState struct {
	Faults
	limiter *rate.Limiter // nil: no limit
}

// SetFaults replaces the present faults, from the next request on. SetFaults(Faults{}) ends them all.
func (s *Server) SetFaults(f Faults) {
	state := &faultState{Faults: f}
	if f.Throttle > 0 {
		state.limiter = rate.NewLimiter(rate.Limit(f.Throttle), max(1, int(f.Throttle)))
	}
	s.faults.Store(state)
}

// Faults returns the present faults.
func (s *Server) Faults() Faults { return s.faults.Load().Faults }

// inject waits as long as the faults say and returns the status that they answer with, 0 if they answer nothing.
// closed: close the connection instead of answering.
func (f *faultState) inject(ctx context.Context, hit Hit) (status int, closed bool) {
	latency := f.Latency
	if f.LatencyOf != nil {
		latency += f.LatencyOf(hit)
	}
	if !loopback.Sleep(ctx, latency) {
		return 0, true
	}
	switch f.Outage {
	case NoOutage:
	case Closed:
		return 0, true
	case Unavailable:
		return http.StatusServiceUnavailable, false
	}
	if f.EarlyBoot {
		return http.StatusUnauthorized, false
	}
	if f.limiter != nil && !f.limiter.Allow() {
		return cmp.Or(f.ThrottleStatus, http.StatusServiceUnavailable), false
	}
	if f.Hook != nil {
		return f.Hook(hit), false
	}
	return 0, false
}
