package kubeapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Outage is how the server is away.
type Outage int

const (
	// Up is no outage.
	Up Outage = iota
	// Refuse closes the listener and every connection: dialling is refused, as
	// when no kube-apiserver runs. Needs Run; for a bare handler it is Reset.
	Refuse
	// Reset accepts connections and closes them without an answer.
	Reset
	// Unavailable answers 503, as a load balancer without a backend does.
	Unavailable
	// Hang accepts requests and does not answer until the outage is over; open
	// watches stay open and silent, as behind a dropped network path.
	Hang
)

// faults is what is wrong at present; Server.mu guards it.
type faults struct {
	outage  Outage
	latency time.Duration
	lag     time.Duration
	frozen  bool
	pinned  *snapshot
	denied  []*denial
	token   string
	revoked bool
}

type denial struct{ verb, resource string }

// SetOutage makes the server go away in the given manner, or come back (Up).
// Except for Hang, what is open is cut at once.
func (s *Server) SetOutage(o Outage) {
	s.fault(func() { s.faults.outage = o })
	if o != Up && o != Hang {
		s.cut(func(*Request) bool { return true })
	}
}

// SetLatency delays every answer by d; a watch only its beginning.
func (s *Server) SetLatency(d time.Duration) { s.fault(func() { s.faults.latency = d }) }

// SetWatchLag delivers each change to watches only d after it was made. What a
// watch begins with is not delayed, and nothing overtakes.
func (s *Server) SetWatchLag(d time.Duration) { s.fault(func() { s.faults.lag = d }) }

// FreezeWatches lets no watch deliver anything until ThawWatches, new ones
// included. Gets and lists still tell the truth.
func (s *Server) FreezeWatches() { s.fault(func() { s.faults.frozen = true }) }

// ThawWatches delivers what FreezeWatches held back.
func (s *Server) ThawWatches() { s.fault(func() { s.faults.frozen = false }) }

// DropWatches cuts the connection under every open watch. Clients watch again.
func (s *Server) DropWatches() { s.cut(func(r *Request) bool { return r.Verb == "watch" }) }

// SendBookmarks gives every watch that allows it a bookmark now.
func (s *Server) SendBookmarks() {
	s.fault(func() {
		for wt := range s.watchers {
			wt.bookmark(s.store.version, time.Now())
		}
	})
}

// FreezeReads answers gets and lists from the present state until ThawReads,
// whatever is written meanwhile: a kube-apiserver whose cache is behind. Watches
// are not affected.
func (s *Server) FreezeReads() {
	s.fault(func() {
		if now, ok := s.store.at(s.store.version); ok {
			s.faults.pinned = &now
		}
	})
}

// ThawReads ends FreezeReads.
func (s *Server) ThawReads() { s.fault(func() { s.faults.pinned = nil }) }

// Compact forgets all history: to watch from an older version, or to continue an
// older list, is answered 410 Expired. Open watches go on.
func (s *Server) Compact() { s.fault(func() { s.store.compact(s.store.version) }) }

// SetToken makes this the only token that is accepted, "" every request.
func (s *Server) SetToken(token string) {
	s.fault(func() { s.faults.token, s.faults.revoked = token, false })
}

// RevokeToken accepts no token from now on: every request is answered 401, as
// after a ServiceAccount was deleted. Open watches go on, as they do there.
func (s *Server) RevokeToken() { s.fault(func() { s.faults.revoked = true }) }

// Deny answers 403 to a verb ("get", "list", "watch", "create", "patch") on a
// resource ("pods"); "*" stands for all of either. The returned func takes it back.
func (s *Server) Deny(verb, resource string) (allow func()) {
	d := &denial{verb: verb, resource: resource}
	s.fault(func() { s.faults.denied = append(s.faults.denied, d) })
	return func() {
		s.fault(func() {
			s.faults.denied = slices.DeleteFunc(s.faults.denied, func(other *denial) bool { return other == d })
		})
	}
}

func (s *Server) fault(set func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	set()
	s.broadcast()
}

// cut ends requests that are being served, without a further byte.
func (s *Server) cut(match func(*Request) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for rec, open := range s.open {
		if match(rec) {
			open.cancel(errCut)
		}
	}
}

// suffer lets a request have what is wrong; an error is the answer to it, unless
// its context ended.
func (s *Server) suffer(ctx context.Context) error {
	if err := s.awaitOutage(ctx, func(o Outage) bool { return o != Hang }); err != nil {
		return err
	}
	s.mu.Lock()
	outage, latency := s.faults.outage, s.faults.latency
	s.mu.Unlock()
	switch outage {
	case Up, Hang:
	case Refuse, Reset:
		panic(http.ErrAbortHandler) // net/http's way to cut a connection without an answer
	case Unavailable:
		return apierrors.NewServiceUnavailable("the server is currently unable to handle the request")
	}
	if latency > 0 {
		timer := time.NewTimer(latency)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func (s *Server) awaitOutage(ctx context.Context, match func(Outage) bool) error {
	return s.wait(ctx, func() bool { return match(s.faults.outage) })
}

// authenticate demands the token; health and version are open to those who bring none.
func (s *Server) authenticate(r *http.Request, to route) error {
	s.mu.Lock()
	token, revoked := s.faults.token, s.faults.revoked
	s.mu.Unlock()
	given, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !revoked && (token == "" || given == token) {
		return nil
	}
	if !ok && !to.resource && isPublic(r.URL.Path) {
		return nil
	}
	return apierrors.NewUnauthorized("Unauthorized")
}

func (s *Server) authorize(to route) error {
	if !to.resource {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range s.faults.denied {
		if (d.verb == "*" || d.verb == to.verb) && (d.resource == "*" || d.resource == to.gvr.Resource) {
			scope := "at the cluster scope"
			if to.name.Namespace != "" {
				scope = fmt.Sprintf("in the namespace %q", to.name.Namespace)
			}
			message := fmt.Sprintf("User %q cannot %s resource %q in API group %q %s", s.cfg.User, to.verb, to.gvr.Resource, to.gvr.Group, scope)
			return apierrors.NewForbidden(to.gvr.GroupResource(), to.name.Name, errors.New(message))
		}
	}
	return nil
}
