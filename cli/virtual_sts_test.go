package cli

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"pod2role/credentials"
)

// virtualSTS is STS in virtual time, as a daemon calls it. It holds every call to what the daemon may call it for.
type virtualSTS struct {
	node   *virtualNode
	length time.Duration // of the sessions that it is asked for

	mu       sync.Mutex
	faults   []fault
	latency  time.Duration
	roles    map[credentials.Key]*role // :: key -> its calls
	calls    int
	granted  int
	renewed  int // of those granted
	refusals int // of renewals and others
	probed   int // sessions that were renewed early to learn whether another role's refusal is the node's fault
}

// trouble is what is wrong with STS.
type trouble int

const (
	slow     trouble = iota // answers after seconds
	down                    // answers an error
	throttle                // asks for fewer calls
	hang                    // answers nothing
	deny                    // refuses
)

// fault is something that is wrong for a while.
type fault struct {
	trouble
	from, until time.Time
	role        string // with this role only; empty: with all
}

// role is what happened with one key.
type role struct {
	flying   bool      // a call is
	troubled bool      // that call is
	asked    time.Time // when the session that was given last was asked for
	expires  time.Time // when that ends
	answered time.Time // when the last call was
	bad      time.Time // until when there was trouble
	denied   time.Time // until when it was denied; zero: never
	failed   bool      // the last call did
	refusals int       // as in virtualSTS, when the last session was given
}

// suffer has STS be in trouble from a moment on, for a while.
func (s *virtualSTS) suffer(f fault, from time.Time, length time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f.from, f.until = from, from.Add(length)
	s.faults = append(s.faults, f)
}

// delay has STS take its time for every call.
func (s *virtualSTS) delay(latency time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.latency = latency
}

// fault returns what is wrong with a role now, nil if nothing is.
func (s *virtualSTS) fault(key credentials.Key, now time.Time) *fault {
	for i, f := range s.faults {
		if !now.Before(f.from) && now.Before(f.until) && (f.role == "" || demoBaseARN+f.role == key.RoleARN) {
			return &s.faults[i]
		}
	}
	return nil
}

// assume is credentials.Config.Assume.
func (s *virtualSTS) assume(ctx context.Context, key credentials.Key, _ time.Duration) (*credentials.Session, error) {
	begin := time.Now()
	s.judge(key, begin)

	s.mu.Lock()
	r := s.roles[key]
	f := s.fault(key, begin)
	s.calls++
	r.flying, r.troubled = true, f != nil
	number, latency := s.calls, s.latency+time.Duration(s.calls%9)*30*time.Millisecond
	s.mu.Unlock()

	if f != nil && f.trouble == slow {
		latency += time.Duration(number%5+1) * time.Second
	}
	var answered <-chan time.Time
	if f == nil || f.trouble != hang {
		answered = time.After(latency)
	}
	var err error
	select {
	case <-answered:
	case <-ctx.Done():
		err = ctx.Err()
	}
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	r.flying, r.answered = false, now
	if f != nil {
		r.bad = now
	}
	if err == nil && f != nil {
		switch f.trouble {
		case down:
			err = &credentials.Error{Kind: credentials.Unavailable, Code: "InternalFailure"}
		case throttle:
			err = &credentials.Error{Kind: credentials.Throttled, Code: "Throttling"}
		case deny:
			err = &credentials.Error{Kind: credentials.Refused, Code: "AccessDenied", Err: errors.New("is not authorized to perform: sts:AssumeRole")}
			r.denied = now
			s.refusals++
		case slow, hang:
		}
	}
	if r.failed = err != nil; err != nil {
		return nil, err
	}
	s.granted++
	if now.Before(r.expires) {
		s.renewed++
	}
	r.asked, r.expires, r.refusals = begin, now.Add(s.length), s.refusals
	return &credentials.Session{
		Key: key, AccessKeyID: fmt.Sprint("ASIA", number), Token: credentials.Secret(token(key)), Obtained: now, Expiration: r.expires.Round(0),
	}, nil
}

// token is what a session's token says, by which its owner can be told.
func token(key credentials.Key) string {
	return fmt.Sprintf("%q %q %q", key.RoleARN, key.Name, key.ExternalID)
}

// judge holds a call that begins to what there may be. Each call is either for a role that has no session, because it
// is the first, the last one failed, or nobody has wanted it for a while; or for one that is past half its life; or,
// once for each refusal, for one that shows whether another's refusal is the node's fault. So there are, for each role,
// no more calls than (times it was wanted) x (1 + time it was wanted / half a life), failures that were injected, each
// at least a tenth of a second after the last, and refusals.
func (s *virtualSTS) judge(key credentials.Key, now time.Time) {
	held, left := s.held(key)
	n := s.node
	n.mu.Lock()
	defer n.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.roles[key]
	if r == nil {
		r = &role{}
		s.roles[key] = r
	}
	allowed, steady := false, false
	for _, l := range n.lives {
		// A session outlives the last who wanted it, for a sixth of its life.
		allowed = allowed || n.may(l, key, now.Add(-s.length/6-15*time.Second), now)
		steady = steady || !r.asked.IsZero() && n.mayByView(l, key, r.asked)
	}
	wrong := func(format string, args ...any) {
		n.t.Errorf("after %v: STS was called for %v, %s", time.Since(n.started), key, fmt.Sprintf(format, args...))
	}
	switch {
	case !allowed:
		wrong("which no pod may have")
	case r.flying:
		wrong("while it was being called")
	case r.failed && now.Sub(r.answered) < 100*time.Millisecond:
		wrong("%v after it had failed", now.Sub(r.answered))
	case r.failed:
	case held && left > s.length/2+time.Millisecond && r.refusals < s.refusals:
		s.probed++
	case held && left > s.length/2+time.Millisecond:
		wrong("whose session has %v left", left)
	case !held && steady && r.denied.Before(r.asked) && r.expires.Sub(now) > s.length/60+time.Second:
		wrong("which was wanted all the time, and whose session had %v left", r.expires.Sub(now))
	}
	if s.probed > s.refusals {
		wrong("and %d sessions were renewed early for %d refusals", s.probed, s.refusals)
	}
}

// held returns whether the daemon holds a session of key, and how much is left of it.
func (s *virtualSTS) held(key credentials.Key) (held bool, left time.Duration) {
	s.mu.Lock()
	called := s.roles[key] != nil
	s.mu.Unlock()
	if !called {
		return false, 0
	}
	for _, state := range s.node.daemon.sessions.States() {
		if state.RoleARN == key.RoleARN && state.Name == key.Name && state.ExternalID == masked(key.ExternalID) && state.AccessKeyID != "" {
			return true, time.Duration(state.LeftSeconds * float64(time.Second))
		}
	}
	return false, 0
}

// masked is an external ID of eight characters or more as views show it.
func masked(id string) string {
	if id == "" {
		return ""
	}
	return id[:2] + "***"
}

// able says whether a request for key must have been answered that has waited for the given time, by a pod that has
// been allowed it all the time; and by what. node and s are locked.
func (s *virtualSTS) able(key credentials.Key, asker *life, waited time.Duration) string {
	now, r := time.Now(), s.roles[key]
	if r != nil && !r.asked.IsZero() && r.denied.Before(r.asked) && r.expires.Sub(now) > s.length/60+time.Second && s.node.mayByView(asker, key, r.asked) {
		return "there was a session"
	}
	const enough = 900 * time.Millisecond
	if waited < enough {
		return ""
	}
	since := now.Add(-enough)
	for _, f := range s.faults {
		if f.from.Before(now) && f.until.After(since) {
			return ""
		}
	}
	switch {
	case r == nil: // never called
	case r.flying && r.troubled, since.Sub(r.bad) < 3*time.Second, !r.denied.IsZero() && since.Sub(r.denied) < 62*time.Second:
		return ""
	}
	return "STS worked"
}
