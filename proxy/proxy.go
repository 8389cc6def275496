package proxy

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gorilla/mux"
	"github.com/sirupsen/logrus"
)

// Proxy answers pods. It is made by [New] and run once.
type Proxy struct {
	cfg       Config
	log       *logrus.Entry
	metrics   *metrics
	sources   *sources
	tokens    *tokens
	policy    policy
	documents documents
	router    *mux.Router

	closing   atomic.Bool    // every answer ends its connection
	tooBusy   []byte         // the answer to connections over the limit
	farewells chan struct{}  // a slot for each connection that is being told so
	owned     sync.WaitGroup // goroutines of ours; net/http's are counted in Run
}

// New returns a Proxy. Its error names everything that is wrong with the configuration, one problem a line.
func New(cfg Config) (*Proxy, error) {
	cfg = cfg.withDefaults()
	if err := cfg.check(); err != nil {
		return nil, err
	}
	policy, err := newPolicy(cfg.PassThrough)
	if err != nil {
		return nil, err
	}
	p := &Proxy{
		cfg:       cfg,
		log:       cfg.Log,
		sources:   newSources(&cfg),
		tokens:    newTokens(cfg.TokenKey),
		policy:    policy,
		tooBusy:   rawAnswer(http.StatusServiceUnavailable),
		farewells: make(chan struct{}, maxFarewells),
	}
	if p.log == nil {
		discard := logrus.New()
		discard.SetOutput(io.Discard)
		discard.SetLevel(logrus.PanicLevel)
		p.log = logrus.NewEntry(discard)
	}
	if p.metrics, err = newMetrics(cfg.Registerer, p.sources); err != nil {
		return nil, err
	}
	if cfg.Emulate != nil {
		p.documents, err = newEmulation(*cfg.Emulate)
	} else {
		p.documents, err = newUpstream(&cfg, &p.owned)
	}
	if err != nil {
		return nil, err
	}
	p.router = p.routes()
	return p, nil
}

// linger is how long connections that are idle when Run is told to stop stay open for one more answer: a client may just be
// sending, and would find its connection closed.
const linger = 250 * time.Millisecond

// Run serves the listeners, which it closes, until ctx ends. Then it answers what is underway, for at most
// Config.Drain, each time with `Connection: close`, and returns nil. It returns an error if a listener fails before.
func (p *Proxy) Run(ctx context.Context, listeners ...net.Listener) error {
	base, abort := context.WithCancel(context.WithoutCancel(ctx))
	defer abort()
	var conns, accepting sync.WaitGroup
	server := &http.Server{
		Handler:                      p,
		BaseContext:                  func(net.Listener) context.Context { return base },
		ConnContext:                  p.inspect,
		DisableGeneralOptionsHandler: true, // net/http would answer `OPTIONS *` itself
		ReadHeaderTimeout:            p.cfg.ReadHeaderTimeout,
		WriteTimeout:                 p.cfg.WriteTimeout,
		IdleTimeout:                  p.cfg.IdleTimeout,
		MaxHeaderBytes:               maxHeader,
		ErrorLog:                     log.New(serverLog{p.log}, "", 0),
		ConnState: func(_ net.Conn, state http.ConnState) {
			switch state {
			case http.StateNew: // called by Serve itself, so not after it has returned
				conns.Add(1)
			case http.StateClosed, http.StateHijacked:
				conns.Done()
			case http.StateActive, http.StateIdle:
			}
		},
	}
	failed := make(chan error, len(listeners))
	for _, ln := range listeners {
		accepting.Go(func() {
			if err := server.Serve(listener{ln, p}); ctx.Err() == nil {
				failed <- fmt.Errorf("answering pods on %s: %w", ln.Addr(), err)
			}
		})
	}

	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	p.CloseConnections(true)
	for _, ln := range listeners {
		_ = ln.Close() // if it fails, it was closed
	}
	accepting.Wait() // so that no connection is accepted and then not served
	closed := make(chan struct{})
	p.owned.Go(func() { conns.Wait(); close(closed) })
	drain, stop := context.WithTimeout(base, p.cfg.Drain)
	defer stop()
	idle, stopIdle := context.WithTimeout(drain, linger)
	defer stopIdle()
	select {
	case <-closed:
	case <-idle.Done():
	}
	if server.Shutdown(drain) != nil { // the time is up: Drain, not an error
		abort()
		_ = server.Close()
	}
	<-closed
	p.documents.close()
	p.owned.Wait()
	return err
}

// CloseConnections makes every answer from now on the last on its connection, or takes that back: the client's next request
// then comes by a new connection, which another process with the same socket may accept. None is closed while it is idle,
// when a client may just be sending.
func (p *Proxy) CloseConnections(on bool) { p.closing.Store(on) }

// serverLog passes on what net/http has to say of its connections.
type serverLog struct{ log *logrus.Entry }

// Write implements io.Writer.
func (l serverLog) Write(b []byte) (int, error) {
	l.log.WithField("detail", strings.TrimSpace(string(b))).Warn("the HTTP server reports a problem")
	return len(b), nil
}
