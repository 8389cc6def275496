package proxy

import (
	"context"
	"sync"
	"time"
)

// hold is the context of a request that may be held until a deadline. Unlike context.WithDeadline it sets no timer
// before somebody waits for it, which nobody does while everything is at hand; that is a tenth of what a request costs.
type hold struct {
	context.Context // the request's, which has no deadline
	deadline        time.Time

	once   sync.Once
	timed  context.Context
	cancel context.CancelFunc
}

// Deadline implements context.Context.
func (h *hold) Deadline() (time.Time, bool) { return h.deadline, true }

// Done implements context.Context.
func (h *hold) Done() <-chan struct{} { return h.start().Done() }

// Err implements context.Context.
func (h *hold) Err() error {
	if h.Context.Err() == nil && time.Now().Before(h.deadline) {
		return nil
	}
	return h.start().Err()
}

func (h *hold) start() context.Context {
	h.once.Do(func() { h.timed, h.cancel = context.WithDeadline(h.Context, h.deadline) })
	return h.timed
}

// release stops the timer, if there is one. The request's own context, which net/http ends, ends the rest.
func (h *hold) release() {
	h.once.Do(func() { h.timed, h.cancel = h.Context, func() {} })
	h.cancel()
}
