package credentials

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// entry is what the cache knows of one key. Cache.mu guards it.
type entry struct {
	key     Key
	created time.Time
	phase   float64 // its share of the start-up jitter, in [0, 1)

	// Who wants it.
	refs    int           // owners that refer to it
	used    time.Time     // when it was last asked for or let go of
	waiters int           // calls of Get that wait
	since   time.Time     // when the first of them came
	news    chan struct{} // closed when they should look again; nil if nobody waits

	// What it holds.
	session *Session
	life    life

	// What is under way.
	flying bool
	probe  bool // renew it now, to learn whether STS refuses all roles alike

	// What went wrong, since the last success.
	failures  int
	failure   *Error
	failedAt  time.Time
	pause     time.Duration // from failedAt to the next attempt, if nobody waits
	denied    time.Time     // until when a refusal is remembered
	refusedAt time.Time     // when STS first refused to renew the session; zero: it has not
	refused   uint64        // Cache.flights when it did so last

	worked bool   // STS gave a session, and has not taken the role away since
	told   *Error // what OnChange was told last; nil: nothing, or that all is well
}

// entry returns the key's entry, which it makes if there is none.
func (c *Cache) entry(key Key, now time.Time) *entry {
	e := c.entries[key]
	if e == nil {
		e = &entry{key: key, created: now, used: now, phase: rand.Float64()}
		e.life = life{cfg: &c.cfg, length: c.cfg.Duration}
		c.entries[key] = e
	}
	return e
}

// serve returns the session if it is fit to be served, and the life left of it. hurried settles for one below the
// floor, as does trouble with STS.
func (e *entry) serve(now time.Time, hurried bool) (*Session, time.Duration) {
	if e.session == nil {
		return nil, 0
	}
	left := e.life.left(now)
	if left <= e.life.stop() {
		return nil, 0
	}
	if left < e.life.floor() && e.failures == 0 && !hurried {
		return nil, 0
	}
	return e.session, left
}

// denial returns the refusal that is still remembered, nil if none is.
func (e *entry) denial(now time.Time) *Error {
	if e.failures == 0 || !e.failure.Kind.Permanent() || !now.Before(e.denied) {
		return nil
	}
	err := *e.failure
	err.RetryAfter = e.denied.Sub(now)
	return &err
}

// excuse is what a caller is told who could not wait any longer.
func (e *entry) excuse(cause error) *Error {
	if e.failures == 0 {
		return &Error{Kind: Unavailable, Err: fmt.Errorf("waiting for a session: %w", cause)}
	}
	err := *e.failure
	if err.Err == nil {
		err.Err = cause
	} else {
		err.Err = fmt.Errorf("%w, and waiting for a session: %w", err.Err, cause)
	}
	return &err
}

// join counts one more waiter, and returns what is closed when it should look again.
func (e *entry) join(now time.Time) <-chan struct{} {
	if e.waiters == 0 {
		e.since = now
	}
	e.waiters++
	if e.news == nil {
		e.news = make(chan struct{})
	}
	return e.news
}

// leave takes back what join did, unless there was news in the meantime.
func (e *entry) leave(news <-chan struct{}) {
	if e.news == news {
		e.waiters--
	}
}

// publish makes the waiters look again. Until they have, and join anew, they do not count: else the cache would call STS
// for somebody who is about to be served.
func (e *entry) publish() {
	if e.news != nil {
		close(e.news)
		e.news, e.waiters = nil, 0
	}
}

// idle is how long the entry outlives its last use.
func (e *entry) idle() time.Duration { return e.life.scale(idle) }

// wanted reports whether anybody has use for a session.
func (e *entry) wanted(now time.Time) bool {
	return e.refs > 0 || e.waiters > 0 || now.Sub(e.used) < e.idle()
}

// urgency orders the entries that want a call to STS at the same time.
type urgency int

const (
	waiting  urgency = iota // a pod is waiting
	renewal                 // a session grows old: never many at once, and a live session is worth more than a new one
	prefetch                // nobody has asked yet
)

// next returns when the entry wants to ask STS, and how urgently; ok is false if it does not want to.
func (e *entry) next(now time.Time, cfg *Config, started time.Time) (at time.Time, u urgency, ok bool) {
	u = prefetch
	if e.session != nil {
		u = renewal
	}
	switch {
	case e.flying:
		return at, u, false
	case e.waiters > 0 && e.failures == 0:
		return e.since, waiting, true
	case e.waiters > 0 && e.failure.Kind.Permanent():
		return e.denied, waiting, true
	case e.waiters > 0:
		return e.failedAt.Add(min(e.pause/5, 2*time.Second)), waiting, true
	case e.probe:
		return now, u, true
	case !e.wanted(now):
		return at, u, false
	case e.failures > 0:
		// A pod that is not referred to has to ask again; nobody else cares.
		return e.failedAt.Add(e.pause), u, e.refs > 0 || e.session != nil
	case e.session != nil:
		return now.Add(e.life.left(now) - e.life.renew), u, true
	}
	at = started.Add(time.Duration(e.phase * float64(cfg.StartJitter)))
	if at.Before(e.created) {
		at = e.created
	}
	return at, u, true
}

// fail records that STS gave no session.
func (e *entry) fail(now time.Time, err *Error, cfg *Config) {
	e.failures++
	e.failure, e.failedAt = err, now
	doubled := func(d time.Duration) time.Duration { return d << min(e.failures-1, 10) }
	switch err.Kind {
	case Refused, Invalid:
		longest := 4 * cfg.NegativeTTL
		remembered := max(cfg.NegativeTTL, jitter(min(2*doubled(cfg.NegativeTTL), longest)))
		e.denied = now.Add(remembered)
		if e.session == nil {
			longest = 20 * cfg.NegativeTTL // nothing to save, and a pod that asks is not bound by it
		}
		e.pause = max(remembered, jitter(min(doubled(cfg.NegativeTTL), longest)))
	case Throttled:
		e.pause = jitter(min(doubled(5*time.Second), e.life.scale(2*time.Minute)))
	case Unavailable, OwnIdentity:
		e.pause = jitter(min(doubled(time.Second), e.life.scale(time.Minute)))
	}
	e.pause = max(e.pause, min(err.RetryAfter, time.Minute))
}

// jitter returns something between half of d and d.
func jitter(d time.Duration) time.Duration { return d/2 + rand.N(d/2+1) }
