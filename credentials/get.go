package credentials

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// patience is how long a pod waits for a better session while one that is valid, but below the floor, is at hand: less
// than the second that botocore gives the metadata service.
const patience = 800 * time.Millisecond

var (
	errTimeout = errors.New("STS has not answered in time")
	errStopped = errors.New("the daemon is stopping")
)

// Get returns a session for the key, at once if there is one that is worth serving, else as soon as STS gives one. It
// returns no session below Config.Stop, and none below Config.Floor unless STS fails or is slow.
//
// Its error is an [*Error] whose text names the role. Refusals are remembered and returned at once. While STS fails in
// a way that may pass, Get waits until ctx ends, or for Config.Timeout; the call to STS goes on without it.
func (c *Cache) Get(ctx context.Context, key Key) (*Session, error) {
	now := time.Now()
	c.mu.Lock()
	e := c.entry(key, now)
	e.used = now
	s, left := e.serve(now, false)
	c.mu.Unlock()
	if s != nil {
		c.metrics.life.Observe(left.Seconds())
		return s, nil
	}
	return c.wait(ctx, key)
}

// wait is Get where there is nothing to serve yet.
func (c *Cache) wait(ctx context.Context, key Key) (*Session, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, c.cfg.Timeout, errTimeout)
	defer cancel()
	impatience := time.NewTimer(patience)
	defer impatience.Stop()

	hurried := false
	for {
		now := time.Now()
		c.mu.Lock()
		e := c.entry(key, now)
		e.used = now
		if s, left := e.serve(now, hurried); s != nil {
			c.mu.Unlock()
			c.metrics.life.Observe(left.Seconds())
			return s, nil
		}
		err := e.denial(now)
		if err == nil && c.stopped {
			err = &Error{Kind: Unavailable, Err: errStopped}
		}
		if err != nil {
			c.mu.Unlock()
			return nil, c.failed(key, err)
		}
		news := e.join(now)
		c.mu.Unlock()
		c.wake()

		select {
		case <-news:
		case <-impatience.C:
			hurried = true
		case <-ctx.Done():
			hurried = true
		}

		now = time.Now()
		c.mu.Lock()
		e.leave(news)
		if ctx.Err() == nil {
			c.mu.Unlock()
			continue
		}
		s, left := e.serve(now, true)
		err = e.excuse(context.Cause(ctx))
		c.mu.Unlock()
		if s != nil {
			c.metrics.life.Observe(left.Seconds())
			return s, nil
		}
		return nil, c.failed(key, err)
	}
}

// failed counts an error that Get is about to return, and names the role in it.
func (c *Cache) failed(key Key, err *Error) error {
	c.metrics.unserved.WithLabelValues(err.Kind.String()).Inc()
	return fmt.Errorf("assuming role %s: %w", key.RoleARN, err)
}
