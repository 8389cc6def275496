package sts

import (
	"context"
	"slices"
	"time"

	"golang.org/x/time/rate"

	"pod2role/sandbox/loopback"
)

// Outage is a way of not being there.
type Outage int

const (
	// NoOutage answers.
	NoOutage Outage = iota
	// Unavailable answers 503 ServiceUnavailable.
	Unavailable
	// Failing answers 500 InternalFailure.
	Failing
	// Hanging holds each call until other faults are set, which then decide about it, or until its client leaves.
	Hanging
	// Closed closes each connection without an answer.
	Closed
)

// Faults is what goes wrong at present. The zero value: nothing. They apply in the order of the fields, to every call,
// after it was recorded.
type Faults struct {
	// Latency passes before each answer, LatencyOf beside it (nil: none). A client that leaves ends it.
	Latency   time.Duration
	LatencyOf func(Call) time.Duration

	Outage Outage
	// Throttle is how many calls a second are answered, with a burst of as many (at least one); the others get
	// Throttling. 0: no limit.
	Throttle float64
	// Deny are the ARNs of roles that nobody may assume at present.
	Deny []string
	// Hook says with which error a call is answered instead of what it asked for; nil: none. ctx ends with the client.
	Hook func(ctx context.Context, call Call) *Error
	// Lifetime is the life of the sessions given, in place of Config.Lifetime; 0: no change.
	Lifetime time.Duration
}

type faultState struct {
	Faults
	limiter  *rate.Limiter // nil: no limit
	replaced chan struct{} // closed when other faults are set
}

// SetFaults replaces the present faults, from the next call on and for those that hang. SetFaults(Faults{}) ends them.
func (s *Server) SetFaults(f Faults) {
	f.Deny = slices.Clone(f.Deny)
	state := &faultState{Faults: f, replaced: make(chan struct{})}
	if f.Throttle > 0 {
		state.limiter = rate.NewLimiter(rate.Limit(f.Throttle), max(1, int(f.Throttle)))
	}
	if old := s.faults.Swap(state); old != nil {
		close(old.replaced)
	}
}

// Faults returns the present faults.
func (s *Server) Faults() Faults { return s.faults.Load().Faults }

// inject waits as long as the faults say and returns the error that they answer with, nil if they answer nothing.
// closed: close the connection instead of answering.
func (s *Server) inject(ctx context.Context, call Call) (err *Error, closed bool) {
	f := s.faults.Load()
	latency := f.Latency
	if f.LatencyOf != nil {
		latency += f.LatencyOf(call)
	}
	if !loopback.Sleep(ctx, latency) {
		return nil, true
	}
	for f.Outage == Hanging {
		select {
		case <-f.replaced:
			f = s.faults.Load()
		case <-ctx.Done():
			return nil, true
		}
	}
	switch f.Outage {
	case NoOutage, Hanging:
	case Unavailable:
		return &Error{Code: "ServiceUnavailable", Message: "The request has failed due to a temporary failure of the server."}, false
	case Failing:
		return &Error{Code: "InternalFailure", Message: "The request processing has failed because of an unknown error."}, false
	case Closed:
		return nil, true
	}
	if f.limiter != nil && !f.limiter.Allow() {
		return &Error{Code: "Throttling", Message: "Rate exceeded"}, false
	}
	if slices.Contains(f.Deny, call.RoleARN) {
		return denied(call, "sts:"+call.Action), false
	}
	if f.Hook != nil {
		return f.Hook(ctx, call), false
	}
	return nil, false
}
