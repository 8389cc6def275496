package imds

import (
	"context"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"pod2role/sandbox/loopback"
)

// Server is one instance's metadata service. It is an http.Handler, and safe for concurrent use.
type Server struct {
	cfg     Config
	started time.Time

	hits    *loopback.Journal[Hit]
	secrets *loopback.Journal[Hit]

	faults   atomic.Pointer[faultState]
	tokenKey atomic.Pointer[tokenKey]
	tree     atomic.Pointer[tree]
}

// New returns the metadata service of the instance that cfg describes, started at this moment.
func New(cfg Config) *Server {
	cfg = cfg.withDefaults()
	s := &Server{
		cfg:     cfg,
		started: time.Now(),
		hits:    loopback.NewJournal[Hit](cfg.MaxHits),
		secrets: loopback.NewJournal[Hit](cfg.MaxHits),
	}
	s.SetFaults(Faults{})
	s.RevokeTokens()
	s.SetSpot(nil)
	return s
}

// Config returns the configuration with its defaults filled in.
func (s *Server) Config() Config { return s.cfg }

// Serve answers the connections of ln until ctx ends; then it closes them and returns nil.
func (s *Server) Serve(ctx context.Context, ln net.Listener) error { return loopback.Serve(ctx, ln, s) }

// ServeHTTP implements http.Handler. It closes the connection by a panic with http.ErrAbortHandler, which the server
// of net/http recovers, when the faults say so. It never redirects.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	understood := s.understand(target(r))
	hit, answered := s.record(r, understood)
	status, closed := s.faults.Load().inject(r.Context(), hit)
	if closed {
		panic(http.ErrAbortHandler)
	}
	a := failure(status)
	if status == 0 {
		a = s.answer(r, understood)
	}
	answered(a.status)
	s.write(w, a)
}

func (s *Server) answer(r *http.Request, understood reading) answer {
	if understood.isToken() {
		if r.Method != http.MethodPut {
			return notAllowed("OPTIONS, PUT")
		}
		return s.putToken(r, understood.version)
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return notAllowed("GET, HEAD, OPTIONS")
	}
	if !strings.HasPrefix(r.URL.Path, "/") {
		return failure(http.StatusBadRequest)
	}
	refusal, left := s.authorize(r)
	if refusal != nil {
		return *refusal
	}
	a := s.data(understood)
	if left > 0 {
		a.header = map[string]string{TokenTTLHeader: strconv.Itoa(left)}
	}
	return a
}

// data answers with what the reading names.
func (s *Server) data(understood reading) answer {
	if !understood.ok {
		return failure(http.StatusNotFound)
	}
	if understood.version == "" {
		return answer{status: http.StatusOK, contentType: "text/plain", body: []byte(strings.Join(versions(), "\n"))}
	}
	body, contentType, ok := s.tree.Load().get(understood.path)
	if !ok {
		return failure(http.StatusNotFound)
	}
	return answer{status: http.StatusOK, contentType: contentType, body: body}
}
