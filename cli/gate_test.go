package cli

import (
	"errors"
	"net"
	"testing"
	"time"
)

func TestAGateThatIsShutLeavesConnectionsInTheQueue(t *testing.T) {
	l, err := listenLoopback(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	g := newGate(l.(*net.TCPListener))
	defer g.Close()
	accepted := make(chan error)
	go func() {
		for {
			c, err := g.Accept()
			if err == nil {
				_ = c.Close()
			}
			accepted <- err
			if err != nil {
				return
			}
		}
	}()
	knock := func() {
		t.Helper()
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
	}
	for range 3 {
		knock()
		if err := <-accepted; err != nil {
			t.Fatal(err)
		}
		g.set(false)
		knock()
		select {
		case err := <-accepted:
			t.Fatalf("it let in a connection while it was shut (%v)", err)
		case <-time.After(50 * time.Millisecond):
		}
		g.set(true)
		if err := <-accepted; err != nil {
			t.Fatal(err)
		}
	}
	g.set(false)
	if err := g.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-accepted; !errors.Is(err, net.ErrClosed) {
		t.Errorf("a gate that is closed while it is shut: got %v, want net.ErrClosed", err)
	}
}

func TestOnlySocketsWithTheRightAddressAreTaken(t *testing.T) {
	for _, tt := range []struct {
		listen, want string
		ok           bool
	}{
		{"127.0.0.1:0", "127.0.0.1:PORT", true},
		{"127.0.0.1:0", "127.0.0.1:1", false},
		{"127.0.0.1:0", ":PORT", false},
		{":0", ":PORT", true},
		{":0", "127.0.0.1:PORT", false},
	} {
		l, err := net.Listen("tcp", tt.listen)
		if err != nil {
			t.Fatal(err)
		}
		_, port, _ := net.SplitHostPort(l.Addr().String())
		host, wanted, _ := net.SplitHostPort(tt.want)
		if wanted == "PORT" {
			wanted = port
		}
		if got := listensOn(l, net.JoinHostPort(host, wanted)); got != tt.ok {
			t.Errorf("one on %s for %s: got %t, want %t", tt.listen, tt.want, got, tt.ok)
		}
		_ = l.Close()
	}
}
