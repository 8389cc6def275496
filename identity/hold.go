package identity

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"pod2role/mappings"
)

// A question that was asked in vain is asked again after pauses that double from the first to the longest.
const (
	firstPause   = 500 * time.Millisecond
	longestPause = 2 * time.Second
)

// Held is a request that waits for its pod to become known.
type Held struct {
	Addr    netip.Addr `json:"addr"`
	Since   time.Time  `json:"since"`
	Waiting string     `json:"waiting"` // what for, in a sentence
}

// Held returns the requests that wait, the oldest first.
func (r *Resolver) Held() []Held {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make([]Held, 0, len(r.held))
	for h := range r.held {
		all = append(all, *h)
	}
	slices.SortFunc(all, func(a, b Held) int { return cmp.Or(a.Since.Compare(b.Since), a.Addr.Compare(b.Addr)) })
	return all
}

// Wake makes the requests that wait look again. Call it after a source has changed: a record, a pod, a namespace, the
// base ARN, the kernel's word.
func (r *Resolver) Wake() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.wake != nil {
		close(r.wake)
		r.wake = nil
	}
}

// woken returns the channel that the next Wake closes. To lose no change, get it first and look then.
func (r *Resolver) woken() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.wake == nil {
		r.wake = make(chan struct{})
	}
	return r.wake
}

// hold waits until the decision for addr is settled, or there is no more time.
func (r *Resolver) hold(ctx context.Context, addr netip.Addr, ingress int) *mappings.Decision {
	h, busy := r.admit(addr)
	if busy != nil {
		return busy
	}
	ctx, cancel := context.WithTimeout(ctx, r.config.Hold)
	defer cancel()
	inquiry := inquiry{resolver: r, source: addr}
	decision := r.await(ctx, h, ingress, &inquiry)
	inquiry.leave()
	r.release(h, decision.Verdict)
	return decision
}

func (r *Resolver) await(ctx context.Context, h *Held, ingress int, q *inquiry) *mappings.Decision {
	for {
		woken := r.woken()
		s := r.look(h.Addr, ingress, q)
		if settled(s.decision) {
			return s.decision
		}
		r.mu.Lock()
		h.Waiting = s.decision.Reason
		r.mu.Unlock()

		answered, retry := q.ask(s.ask)
		select {
		case <-woken:
		case <-answered:
			q.hear()
		case <-retry:
		case <-ctx.Done():
			return gaveUp(s.decision, time.Since(h.Since), q.note)
		}
	}
}

// gaveUp is the decision of a request that waited in vain. It leaves d, which others may share, as it is.
func gaveUp(d *mappings.Decision, waited time.Duration, note string) *mappings.Decision {
	final := *d
	if note != "" {
		final.Trail = append(slices.Clip(final.Trail), mappings.Step{Looked: "the API server, asked directly", Found: note})
	}
	final.Reason = fmt.Sprintf("%s; waited %s for it", d.Reason, waited.Round(time.Millisecond))
	return &final
}

// admit counts one more request from addr that waits, or says that there are too many.
func (r *Resolver) admit(addr netip.Addr) (*Held, *mappings.Decision) {
	r.mu.Lock()
	defer r.mu.Unlock()
	reason := ""
	switch {
	case r.perSource[addr] >= r.config.MaxHeldPerSource:
		reason = fmt.Sprintf("%d requests from %s are waiting already for their pod to become known", r.perSource[addr], addr)
	case len(r.held) >= r.config.MaxHeld:
		reason = fmt.Sprintf("%d requests of this node are waiting already for their pods to become known", len(r.held))
	}
	if reason != "" {
		r.metrics.outcome(mappings.Busy)
		return nil, unbound(mappings.Busy, "the requests that wait", "too many", "%s", reason).decision
	}
	h := &Held{Addr: addr, Since: time.Now()}
	r.held[h] = struct{}{}
	r.perSource[addr]++
	r.metrics.held.Set(float64(len(r.held)))
	return h, nil
}

func (r *Resolver) release(h *Held, v mappings.Verdict) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.held, h)
	if r.perSource[h.Addr]--; r.perSource[h.Addr] == 0 {
		delete(r.perSource, h.Addr)
	}
	r.metrics.held.Set(float64(len(r.held)))
	r.metrics.outcome(v)
	r.metrics.seconds.Observe(time.Since(h.Since).Seconds())
}
