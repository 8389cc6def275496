package kubeapi

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
)

// Config says what kind of API server this is. The zero value is a current one
// that lets every request in.
type Config struct {
	// Token is the bearer token that requests must carry, "" none.
	Token string
	// User is whom the token stands for, as 403 answers name it; default
	// "system:serviceaccount:kube-system:pod2role".
	User string
	// NoWatchList makes it a server that does not stream initial events (before
	// Kubernetes 1.34): it refuses sendInitialEvents with 422, and clients list.
	NoWatchList bool
	// BookmarkInterval is how often watches that allow it get a bookmark, default 1 min.
	BookmarkInterval time.Duration
	// Certificate makes Run serve https with HTTP/2, as kube-apiserver does; see SelfSigned.
	Certificate *tls.Certificate
	// Version is what /version says, default "v1.37.0".
	Version string
	// Now is the clock of what is written into objects, default time.Now.
	Now func() time.Time
}

// Server is a Kubernetes API server. It is an http.Handler, safe for concurrent use.
type Server struct {
	cfg       Config
	scheme    *runtime.Scheme
	codecs    serializer.CodecFactory
	resources []*resource

	mu         sync.Mutex
	changed    chan struct{} // closed and made anew whenever anything below changes
	store      store
	watchers   map[*watcher]struct{}
	eventOrder []types.NamespacedName
	faults     faults
	requests   []*Request
	open       map[*Request]serving
}

// serving is what it takes to end a request that is being served.
type serving struct {
	cancel context.CancelCauseFunc
	by     *http.Server // nil: a handler without a server
}

// errCut is the cause of a context that ended because the server cut the connection.
var errCut = errors.New("connection cut by the sandbox")

// New returns a server with an empty cluster. Nothing runs before Run.
func New(cfg Config) *Server {
	cfg.User = cmp.Or(cfg.User, "system:serviceaccount:kube-system:pod2role")
	cfg.BookmarkInterval = cmp.Or(cfg.BookmarkInterval, time.Minute)
	cfg.Version = cmp.Or(cfg.Version, "v1.37.0")
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	scheme := newScheme()
	return &Server{
		cfg: cfg, scheme: scheme, codecs: serializer.NewCodecFactory(scheme), resources: newResources(),
		changed: make(chan struct{}), store: newStore(), watchers: map[*watcher]struct{}{},
		faults: faults{token: cfg.Token}, open: map[*Request]serving{},
	}
}

// Run serves on ln until ctx ends, then cuts what is open, closes ln and returns
// nil. While the outage Refuse lasts, ln is closed, and opened again at the same
// address; that this could not be done is an error.
func (s *Server) Run(ctx context.Context, ln net.Listener) error {
	for {
		if err := s.serveUntil(ctx, ln); err != nil || ctx.Err() != nil {
			return err
		}
		if err := s.awaitOutage(ctx, func(o Outage) bool { return o != Refuse }); err != nil {
			return nil // ctx ended, which is how Run ends
		}
		again, err := net.Listen(ln.Addr().Network(), ln.Addr().String())
		if err != nil {
			return fmt.Errorf("listening again after an outage: %w", err)
		}
		ln = again
	}
}

// serveUntil serves until ctx ends or connections are to be refused.
func (s *Server) serveUntil(ctx context.Context, ln net.Listener) error {
	serving, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	httpServer := &http.Server{
		Handler:           s,
		ReadHeaderTimeout: 10 * time.Second,
		BaseContext:       func(net.Listener) context.Context { return serving },
		ErrorLog:          log.New(io.Discard, "", 0),
	}
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		_ = s.awaitOutage(serving, func(o Outage) bool { return o == Refuse })
		cancel(errCut) // before Close, so that handlers cut their connections
		_ = httpServer.Close()
	}()
	err := s.serveOn(httpServer, ln)
	cancel(errCut)
	<-closed
	_ = s.wait(context.WithoutCancel(ctx), func() bool { return !s.serves(httpServer) })
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

func (s *Server) serveOn(httpServer *http.Server, ln net.Listener) error {
	if s.cfg.Certificate == nil {
		return httpServer.Serve(ln)
	}
	httpServer.TLSConfig = &tls.Config{Certificates: []tls.Certificate{*s.cfg.Certificate}, MinVersion: tls.VersionTLS12}
	return httpServer.ServeTLS(ln, "", "")
}

// serves tells whether a request of this http.Server is still open; s.mu is held.
func (s *Server) serves(httpServer *http.Server) bool {
	for _, open := range s.open {
		if open.by == httpServer {
			return true
		}
	}
	return false
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithCancelCause(r.Context())
	route := s.route(r)
	rec := s.begin(r, route, cancel)
	defer s.end(rec, cancel)
	s.serve(&responseRecorder{ResponseWriter: w, server: s, request: rec}, r.WithContext(ctx), route)
	if errors.Is(context.Cause(ctx), errCut) {
		panic(http.ErrAbortHandler) // net/http's way to cut a connection without an answer
	}
}

// serve passes a request through the faults, authentication and authorization to its handler.
func (s *Server) serve(w http.ResponseWriter, r *http.Request, to route) {
	if err := s.suffer(r.Context()); err != nil {
		if r.Context().Err() == nil {
			s.writeError(w, r, err)
		}
		return
	}
	if err := s.authenticate(r, to); err != nil {
		s.writeError(w, r, err)
		return
	}
	if err := s.authorize(to); err != nil {
		s.writeError(w, r, err)
		return
	}
	if err := s.dispatch(w, r, to); err != nil {
		s.writeError(w, r, err)
	}
}

// put, remove and publish write to the store and let the watches know; s.mu is held.
func (s *Server) put(res *resource, obj Object) {
	s.publish(s.store.put(res, obj, s.cfg.Now()))
}

func (s *Server) remove(res *resource, name types.NamespacedName) bool {
	c, ok := s.store.remove(res, name)
	if ok {
		s.publish(c)
	}
	return ok
}

func (s *Server) publish(c change) {
	if c.store == "events" {
		s.noteEvent(c)
	}
	now := time.Now()
	for wt := range s.watchers {
		wt.offer(c, now)
	}
	s.broadcast()
}

// broadcast wakes whoever waits for a change; s.mu is held.
func (s *Server) broadcast() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// wait returns when cond holds, which is asked with s.mu held after every
// change, or the error of ctx.
func (s *Server) wait(ctx context.Context, cond func() bool) error {
	for {
		s.mu.Lock()
		done, changed := cond(), s.changed
		s.mu.Unlock()
		if done {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
