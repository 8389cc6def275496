package credentials

import (
	"math/rand/v2"
	"time"
)

// life is how long a session lives. It is judged by two clocks, and ends when the earlier of them says so: the wall
// clock may be set back, and a session that is dead to STS must not come back to life; the monotonic clock stands still
// while a virtual machine is suspended.
type life struct {
	cfg     *Config
	length  time.Duration // from the request to the end
	ends    time.Time     // with the monotonic clock's reading
	expires time.Time     // as STS said, without
	renew   time.Duration // with how much left it is renewed
}

// newLife returns the life of a session that was asked for at a moment, and expires at another by STS's clock. It is
// no longer than what was asked for, lest a node whose clock is late believes in more.
func newLife(cfg *Config, requested, expiration time.Time) life {
	l := life{cfg: cfg, expires: expiration.Round(0)}
	l.length = min(cfg.Duration, l.expires.Sub(requested))
	l.ends = requested.Add(l.length)
	// From half-life on, early enough to serve 25 minutes of an hour even if the call takes a while.
	l.renew = l.length / 2
	if l.length > 0 {
		l.renew -= rand.N(l.length/15 + 1)
	}
	return l
}

// left returns how much of the life is left.
func (l life) left(now time.Time) time.Duration {
	return min(l.ends.Sub(now), l.expires.Sub(now))
}

func (l life) floor() time.Duration { return l.scale(l.cfg.Floor) }
func (l life) stop() time.Duration  { return l.scale(l.cfg.Stop) }

// scale shrinks d, which is meant for an hour's session, to one that is shorter.
func (l life) scale(d time.Duration) time.Duration {
	return min(d, time.Duration(float64(d)*l.length.Hours()))
}
