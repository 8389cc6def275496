package loopback

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
	"time"
)

// Serve answers the connections of ln with h until ctx ends, then closes the listener and every connection, waits for
// the handlers to return, and returns nil. It returns an error only if ln fails before that. The context of each
// request ends with ctx and with its client, so a handler that waits must watch it.
func Serve(ctx context.Context, ln net.Listener, h http.Handler) error {
	var conns sync.WaitGroup
	srv := &http.Server{
		Handler:                      h,
		BaseContext:                  func(net.Listener) context.Context { return ctx },
		DisableGeneralOptionsHandler: true, // `OPTIONS *` is the handler's to answer and to record
		ReadHeaderTimeout:            10 * time.Second,
		MaxHeaderBytes:               64 << 10,
		ErrorLog:                     log.New(io.Discard, "", 0),
		ConnState: func(_ net.Conn, state http.ConnState) {
			switch state {
			case http.StateNew: // called by the accept loop, so never after Serve has returned
				conns.Add(1)
			case http.StateClosed, http.StateHijacked:
				conns.Done()
			case http.StateActive, http.StateIdle:
			}
		},
	}
	stop := context.AfterFunc(ctx, func() { _ = srv.Close() })
	defer stop()

	err := srv.Serve(ln)
	_ = srv.Close() // once more: a connection may have been accepted while the first Close ran
	conns.Wait()
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("serving on %s: %w", ln.Addr(), err)
}

// Sleep waits for d or until ctx ends, and says whether it waited for all of d.
func Sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
