package credentials

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
)

// tick is the longest that the entries are left alone: timers do not notice that the wall clock was set.
const tick = 30 * time.Second

// Run fetches, renews and drops sessions until ctx ends. It then cancels the calls to STS that are under way, waits for
// them, and returns nil. Sessions that are held are served further on; nothing is fetched any more. It is to be called
// once.
func (c *Cache) Run(ctx context.Context) error {
	var flights sync.WaitGroup
	defer func() {
		flights.Wait()
		c.stop()
	}()
	c.mu.Lock()
	c.started = time.Now()
	c.mu.Unlock()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-c.kick:
		case <-timer.C:
		}
		ready, wake := c.sweep(time.Now())
		for _, e := range ready {
			flights.Go(func() { c.fly(ctx, e) })
		}
		timer.Reset(time.Until(wake))
	}
}

// stop makes everybody who waits look again, in vain.
func (c *Cache) stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopped = true
	for _, e := range c.entries {
		e.publish()
	}
}

// sweep drops what is dead, and returns the entries for which to ask STS now, marked as flying, and when to look again.
func (c *Cache) sweep(now time.Time) (ready []*entry, wake time.Time) {
	type candidate struct {
		*entry
		at time.Time
		u  urgency
	}
	var candidates []candidate
	var revoked []Key
	wake = now.Add(tick)
	soon := func(t time.Time) {
		if t.Before(wake) {
			wake = t
		}
	}

	c.mu.Lock()
	for key, e := range c.entries {
		if e.session != nil && e.life.left(now) <= e.life.stop() {
			e.session = nil
		}
		if e.session != nil && !e.refusedAt.IsZero() {
			if end := e.refusedAt.Add(c.cfg.RevocationGrace); end.After(now) {
				soon(end)
			} else if c.revoked(e) {
				e.session, e.worked = nil, false
				revoked = append(revoked, key)
			}
		}
		if !e.flying && !e.wanted(now) {
			delete(c.entries, key)
			continue
		}
		// What is past its time, and only kept for a call or for somebody who waits, is looked at when that has ended.
		if end := e.used.Add(e.idle()); e.refs == 0 && end.After(now) {
			soon(end)
		}
		if at, u, ok := e.next(now, &c.cfg, c.started); ok && at.After(now) {
			soon(at)
		} else if ok {
			candidates = append(candidates, candidate{e, at, u})
		}
	}
	// Those for whom a pod waits go first, then whoever has been waiting longest: a role that fails has just asked, and
	// comes last.
	slices.SortFunc(candidates, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.u, b.u), a.at.Compare(b.at))
	})
	for _, e := range candidates {
		if token := c.limiter.ReserveN(now, 1); token.DelayFrom(now) > 0 {
			soon(now.Add(token.DelayFrom(now)))
			token.CancelAt(now)
			break
		}
		e.flying = true
		ready = append(ready, e.entry)
	}
	c.mu.Unlock()

	for _, key := range revoked {
		c.metrics.revoked.Inc()
		c.log.WithFields(fields(key)).Warn("dropped a session that STS refuses to renew")
	}
	return ready, wake
}

// fly asks STS once. The call belongs to nobody who waits for it.
func (c *Cache) fly(ctx context.Context, e *entry) {
	defer c.wake()
	c.metrics.flights.Inc()
	defer c.metrics.flights.Dec()

	requested := time.Now()
	call, cancel := context.WithTimeoutCause(ctx, c.cfg.Timeout, errTimeout)
	session, err := c.cfg.Assume(call, e.key, c.cfg.Duration)
	if err != nil && errors.Is(context.Cause(call), errTimeout) {
		err = &Error{Kind: Unavailable, Err: fmt.Errorf("%w: %w", errTimeout, err)}
	}
	cancel()
	if err != nil && ctx.Err() != nil {
		c.mu.Lock()
		e.flying = false
		c.mu.Unlock()
		return
	}
	answered := time.Now()
	var fresh life
	if err == nil && session == nil {
		err = errors.New("STS answered without a session")
	}
	if err == nil {
		fresh = newLife(&c.cfg, requested, session.Expiration)
		if fresh.left(answered) <= fresh.stop() {
			err = fmt.Errorf("by this node's clock the new session has expired at %s already: is the clock right?",
				session.Expiration.UTC().Format(time.RFC3339))
		}
	}
	c.metrics.call(err, answered.Sub(requested))
	c.land(e, answered, session, fresh, classified(err))
}

// classified returns err as an *Error, nil for nil.
func classified(err error) *Error {
	if err == nil {
		return nil
	}
	if known, ok := errors.AsType[*Error](err); ok {
		return known
	}
	return &Error{Kind: Unavailable, Err: err}
}

// land records what a flight brought, tells everybody, and allows the next.
func (c *Cache) land(e *entry, now time.Time, session *Session, fresh life, err *Error) {
	c.mu.Lock()
	c.flights++
	kind, failures, told, before := prefetch, e.failures, e.told, e.failure
	if e.session != nil {
		kind = renewal
	}
	if e.waiters > 0 {
		kind = waiting
	}
	e.probe = false
	if err == nil {
		c.success = c.flights
		e.session, e.life, e.worked = session, fresh, true
		e.failures, e.failure, e.told, e.refusedAt = 0, nil, nil, time.Time{}
		e.publish()
	} else {
		e.fail(now, err, &c.cfg)
		if err.Kind == Refused && e.session != nil {
			c.refused(e, now)
		}
		if err.Kind.Permanent() || e.session != nil {
			e.publish() // a refusal to pass on, or an old session to make do with
		}
		if err.Kind.Permanent() || err.Kind == OwnIdentity {
			e.told = err
		}
	}
	change := e.told
	close(c.landed)
	c.landed = make(chan struct{})
	c.mu.Unlock()

	c.metrics.landed(kind, err)
	log := c.log.WithFields(fields(e.key))
	switch {
	case err == nil && failures > 0:
		log.WithFields(logrus.Fields{"request": session.RequestID, "failures": failures}).Info("assumed a role again")
	case err == nil:
		log.WithFields(logrus.Fields{"request": session.RequestID, "expires": session.Expiration.UTC()}).Debug("assumed a role")
	case !alike(before, err):
		log.WithError(err).Warn("cannot assume a role")
	default:
		log.WithError(err).WithField("failures", failures+1).Debug("still cannot assume a role")
	}
	if c.cfg.OnChange != nil && !alike(told, change) {
		if change == nil {
			c.cfg.OnChange(e.key, nil)
		} else {
			c.cfg.OnChange(e.key, fmt.Errorf("assuming role %s: %w", e.key.RoleARN, change))
		}
	}

	c.mu.Lock()
	e.flying = false // only now, so that changes are told in order
	c.mu.Unlock()
}

// alike reports whether two errors, either of which may be nil, are the same to an operator.
func alike(a, b *Error) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Kind == b.Kind && a.Code == b.Code
}

func fields(key Key) logrus.Fields {
	return logrus.Fields{"role": key.RoleARN, "session": key.Name}
}
