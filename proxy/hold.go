package proxy

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// hold is the context of a request that may be held until a deadline. Unlike context.WithDeadline it sets no timer
// before somebody waits for it. Nobody does while everything is at hand, and then the timer would be a fifth of all
// that is done here (BenchmarkWarmRole).
type hold struct {
	context.Context // the request's, which has no deadline
	deadline        time.Time

	once   sync.Once
	timed  atomic.Pointer[context.Context] // what waiting began with; nil: nobody has waited
	cancel context.CancelFunc              // set with timed
}

// Deadline implements context.Context.
func (h *hold) Deadline() (time.Time, bool) { return h.deadline, true }

// Done implements context.Context.
func (h *hold) Done() <-chan struct{} { return h.start().Done() }

// Err implements context.Context. Once somebody has waited it says what Done says, and nothing else: package context
// panics if the one is closed and the other nil.
func (h *hold) Err() error {
	if h.timed.Load() == nil && h.Context.Err() == nil && time.Now().Before(h.deadline) {
		return nil
	}
	return h.start().Err()
}

func (h *hold) start() context.Context {
	h.once.Do(func() {
		timed, cancel := context.WithDeadline(h.Context, h.deadline)
		h.cancel = cancel
		h.timed.Store(&timed)
	})
	return *h.timed.Load()
}

// release stops the timer, if there is one. The request's own context, which net/http ends, ends the rest.
func (h *hold) release() {
	h.once.Do(func() {
		h.cancel = func() {}
		h.timed.Store(&h.Context)
	})
	h.cancel()
}
