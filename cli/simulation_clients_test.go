package cli

import (
	"context"
	"time"

	"pod2role/credentials"
	"pod2role/mappings"
)

// way is how a client asks.
type way int

const (
	botocore way = iota // one attempt, a second for each request
	goSDK               // three attempts, half a second for each request
	patient             // waits as long as it takes
)

// client is when and how a pod asks.
type client struct {
	after time.Duration
	way   way
}

// ask asks as an SDK does: for a token, the role's name, and its credentials. Whether it gets them is for the daemon to
// be judged by, request by request.
func (s *simulation) ask(ctx context.Context, l *life, w way) {
	s.requests.Go(func() {
		attempts, patience := 1, time.Second
		switch w {
		case botocore:
		case goSDK:
			attempts, patience = 3, 500*time.Millisecond
		case patient:
			patience = 10 * time.Second
		}
		s.request(ctx, l, patience, false) // the token; without one SDKs go on
		for _, credentials := range []bool{false, true} {
			served := false
			for attempt := 0; attempt < attempts && !served && ctx.Err() == nil; attempt++ {
				if attempt > 0 {
					<-time.After(time.Duration(attempt) * time.Second)
				}
				if s.over(l) {
					return // its open requests may linger, but it makes no new ones
				}
				served = s.request(ctx, l, patience, credentials)
			}
			if !served {
				return
			}
		}
	})
}

// over says that l has ended.
func (s *simulation) over(l *life) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return l.ended
}

// request is one request of l, answered as package proxy does, and judged. It reports whether it was served.
func (s *simulation) request(ctx context.Context, l *life, patience time.Duration, wantsSession bool) bool {
	const hold = 5 * time.Second
	ctx, cancel := context.WithTimeout(ctx, min(patience, hold))
	defer cancel()
	begin := time.Now()
	got := s.daemon.identity.Resolve(ctx, l.addr, 0)
	told := time.Now()
	about, wrong := s.judgeDecision(l, got, begin)
	var session *credentials.Session
	var err error
	if got.Verdict == mappings.Allowed && wantsSession && about != nil {
		session, err = s.daemon.sessions.Get(ctx, credentials.Key(got.Session))
		if wrong == "" {
			wrong = s.judgeSession(about, got, session, begin, told)
		}
	}
	if wrong != "" {
		s.t.Errorf("after %v, and a wait of %v: %s\n%v %v", time.Since(s.started), time.Since(begin), wrong, got.Trail, err)
	}

	s.total.mu.Lock()
	defer s.total.mu.Unlock()
	if s.total.verdicts == nil {
		s.total.verdicts = map[mappings.Verdict]int{}
	}
	s.total.verdicts[got.Verdict]++
	if got.Verdict == mappings.Allowed && told.After(begin) {
		s.total.held++
	}
	switch {
	case l.uid == "":
		s.total.strangers++
	case session != nil:
		s.total.served++
	case wantsSession && got.Verdict == mappings.Allowed:
		s.total.unserved++
	}
	return got.Verdict == mappings.Allowed && (session != nil || !wantsSession)
}

// judgeDecision says what is wrong with a decision, empty if nothing is, and which pod the answer is for.
func (s *simulation) judgeDecision(asker *life, got *mappings.Decision, begin time.Time) (about *life, wrong string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if got.Pod != nil {
		about = s.lives[got.Pod.UID]
	}
	if about != nil && about != asker {
		// The answer goes to an address. If the asker has ended, only who has it now could read it, and that only
		// where nothing has shown who asked.
		if has := s.has[asker.addr]; !asker.ended || has != about || asker.recordable && !asker.torn {
			return nil, asker.uid + " at " + asker.addr.String() + " was taken for " + got.Pod.UID
		}
	}
	who := asker.uid + " at " + asker.addr.String() + " was told " + got.Verdict.String() + ": " + got.Reason
	switch got.Verdict {
	case mappings.Allowed:
		if !s.may(about, credentials.Key(got.Session), begin, now) {
			return nil, who
		}
	case mappings.NoRole, mappings.Forbidden:
		if !s.ever(about, func(w *span[wish], p *span[permission]) bool {
			return w.during(begin, now) && p.during(begin, now) && !p.what.allows(w.what) && (w.what.role == "") == (got.Verdict == mappings.NoRole)
		}) {
			return nil, who
		}
	case mappings.Pending, mappings.Ambiguous:
		if asker.uid == "" || asker.ended {
			break
		}
		if by := s.known(asker, now.Sub(begin)); by != "" {
			return nil, who + ", and " + by + " knows it"
		}
	case mappings.Undecided, mappings.Malformed, mappings.NotAPod, mappings.Busy:
		return nil, who
	}
	return about, ""
}

// judgeSession says what is wrong with a session, or with there being none.
func (s *simulation) judgeSession(about *life, got *mappings.Decision, session *credentials.Session, begin, told time.Time) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sts.mu.Lock()
	defer s.sts.mu.Unlock()
	now, key := time.Now(), credentials.Key(got.Session)
	switch {
	case session == nil && about.ended:
	case session == nil:
		if by := s.sts.able(key, about, now.Sub(told)); by != "" {
			return about.uid + " was given no session of " + key.RoleARN + ", although " + by
		}
	case session.Key != key || session.Token.Reveal() != token(key):
		return about.uid + " was given the session " + session.Token.Reveal() + " instead of " + token(key)
	case !s.may(about, session.Key, begin, now):
		return about.uid + " was given the session " + session.Token.Reveal() + ", which it may not have"
	case session.Expiration.Sub(now) < s.sts.length/60-time.Millisecond:
		return about.uid + " was given a session that ends in " + session.Expiration.Sub(now).String()
	}
	return ""
}
