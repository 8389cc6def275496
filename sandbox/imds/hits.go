package imds

import (
	"context"
	"net/http"
	"time"
)

// Hit is one request as it arrived.
type Hit struct {
	Time       time.Time
	Method     string
	Target     string // the raw request target
	Path       string // the canonical path that it was understood to be: /latest/meta-data/iam/info
	Header     http.Header
	Host       string
	RemoteAddr string // the client's host:port
	// Secret says that Path is, or lies under, one that no pod may reach: whatever was answered, and also if nothing is
	// served there. The daemon's own look-up of its credentials is such a hit; its User-Agent tells it apart.
	Secret bool
	// Status is what was answered, 0 before that and if the connection was closed instead.
	Status int
}

// Hits returns the latest hits, oldest first.
func (s *Server) Hits() []Hit { return s.hits.All() }

// SecretHits returns the latest hits whose Secret is set, oldest first. However many others came since, they are kept.
func (s *Server) SecretHits() []Hit { return s.secrets.All() }

// Reset forgets all hits.
func (s *Server) Reset() {
	s.hits.Reset()
	s.secrets.Reset()
}

// Wait returns the n-th hit (counted from 1, over those that are kept and those to come) that match accepts; nil
// accepts each. It returns when the hit arrives, before it is answered, or with ctx's error.
func (s *Server) Wait(ctx context.Context, n int, match func(Hit) bool) (Hit, error) {
	return s.hits.Wait(ctx, n, match)
}

// record notes a hit and returns the hit and a function that notes its answer.
func (s *Server) record(r *http.Request, understood reading) (Hit, func(status int)) {
	hit := Hit{
		Time: time.Now(), Method: r.Method, Target: target(r), Path: understood.String(), Header: r.Header.Clone(),
		Host: r.Host, RemoteAddr: r.RemoteAddr, Secret: understood.ok && isSecret(understood.path),
	}
	number, secretNumber := s.hits.Add(hit), 0
	if hit.Secret {
		secretNumber = s.secrets.Add(hit)
	}
	return hit, func(status int) {
		answered := func(h *Hit) { h.Status = status }
		s.hits.Update(number, answered)
		if hit.Secret {
			s.secrets.Update(secretNumber, answered)
		}
	}
}

// target is the raw request target; a request that came over no socket has none.
func target(r *http.Request) string {
	if r.RequestURI != "" {
		return r.RequestURI
	}
	return r.URL.RequestURI()
}
