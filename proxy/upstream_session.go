package proxy

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"
)

const (
	// tokenRenewal is how long before its end the daemon's own token is replaced.
	tokenRenewal = time.Hour
	// renewalPause is how long after a failed renewal the next is tried, while the token is still good.
	renewalPause = time.Minute
	// withoutTokens is for how long IMDSv1 is used after the real service has said that it has no tokens.
	withoutTokens = 5 * time.Minute
)

// upstreamSession is the daemon's own session with the real service. Pods' tokens are another matter: they are made
// here, and the real service never sees them.
type upstreamSession struct {
	send func(ctx context.Context, method, path string, header http.Header) (*reply, http.Header, error)

	mu    sync.Mutex // held while a token is fetched: whoever needs one waits for the same
	value string     // empty: none
	renew time.Time  // when to replace value, or, if there is none, when to ask again
	end   time.Time  // of value
}

// token returns a token, or "" if the service has none and IMDSv1 is to be used.
func (s *upstreamSession) token(ctx context.Context) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if now.Before(s.renew) {
		return s.value, nil
	}
	err := s.fetch(ctx, now)
	if err != nil && now.Before(s.end) {
		s.renew = now.Add(renewalPause)
		return s.value, nil // it is still good for a while
	}
	return s.value, err
}

// drop forgets a token that was not accepted, or that none was sent, so that the next request gets a new one.
func (s *upstreamSession) drop(token string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.value == token {
		s.value, s.renew, s.end = "", time.Time{}, time.Time{}
	}
}

// fetch asks for a token; s.mu is held.
func (s *upstreamSession) fetch(ctx context.Context, now time.Time) error {
	header := http.Header{}
	header.Set(tokenTTLHeader, strconv.Itoa(maxTokenTTL))
	got, answered, err := s.send(ctx, http.MethodPut, "/latest/api/token", header)
	if err != nil {
		return fmt.Errorf("asking for a token: %w", err)
	}
	switch got.status {
	case http.StatusOK:
		ttl, ok := tokenTTL(answered[tokenTTLHeader])
		if !ok {
			ttl = maxTokenTTL
		}
		s.value, s.end = string(got.body), now.Add(time.Duration(ttl)*time.Second)
		s.renew = s.end.Add(-min(tokenRenewal, time.Duration(ttl)*time.Second/2))
		return nil
	case http.StatusForbidden, http.StatusNotFound, http.StatusMethodNotAllowed:
		s.value, s.end = "", time.Time{}
		s.renew = now.Add(withoutTokens)
		return nil
	default:
		return fmt.Errorf("asking for a token: it answers %d", got.status)
	}
}
