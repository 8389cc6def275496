package proxy

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"testing"
	"time"

	"pod2role/mappings"
)

func TestAnswersEndTheirConnectionsWhileTheyAreToldTo(t *testing.T) {
	cfg := testConfig("http://127.0.0.1:1")
	cfg.Decide = func(context.Context, netip.Addr, int) *mappings.Decision { return allowedDecision("reader") }
	p, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ln := listenLoopback(t)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx, ln) }()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("Run returned %v", err)
		}
	}()
	for _, tt := range []struct{ told, want bool }{{false, false}, {true, true}, {false, false}} {
		c := dial(t, readerAddr, ln.Addr().String())
		c.send(request(http.MethodGet, rolePath+"reader"))
		if got := c.receive(http.MethodGet); got.close {
			t.Fatal("closed before it was told to")
		}
		p.CloseConnections(tt.told)
		c.send(request(http.MethodGet, rolePath+"reader")) // on the connection that was idle
		if got := c.receive(http.MethodGet); got.status != http.StatusOK || got.close != tt.want {
			t.Errorf("told %t: status %d, close %t", tt.told, got.status, got.close)
		}
		p.CloseConnections(false)
	}
}

// A client that has a connection from before, and is just sending when Run is told to stop, gets its answer.
func TestRunAnswersOnceMoreOnConnectionsThatAreIdle(t *testing.T) {
	cfg := testConfig("http://127.0.0.1:1")
	cfg.Drain = 10 * time.Second
	cfg.Decide = func(context.Context, netip.Addr, int) *mappings.Decision { return allowedDecision("reader") }
	p, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ln := listenLoopback(t)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx, ln) }()
	c := dial(t, readerAddr, ln.Addr().String())
	c.send(request(http.MethodGet, rolePath+"reader"))
	c.receive(http.MethodGet)
	stop()
	waitFor(t, func() bool { // until it has stopped to listen
		nc, err := new(net.Dialer).DialContext(t.Context(), "tcp", ln.Addr().String())
		if err == nil {
			_ = nc.Close()
		}
		return err != nil
	})
	c.send(request(http.MethodGet, rolePath+"reader"))
	if got := c.receive(http.MethodGet); got.status != http.StatusOK || !got.close {
		t.Errorf("status %d, close %v", got.status, got.close)
	}
	if err := <-ended; err != nil {
		t.Errorf("Run returned %v", err)
	}
}
