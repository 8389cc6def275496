package cli

import (
	"errors"
	"net"
	"os"
	"sync"
	"time"
)

// gate is a listening socket that several processes have open, of which only one is to accept connections. While it is
// shut, Accept waits; connections then queue up for whichever process accepts them. A socket that was closed instead would
// take its queue with it if no other process had it any more.
type gate struct {
	*net.TCPListener

	mu     sync.Mutex
	open   chan struct{} // closed while the gate is open
	closed chan struct{}
	once   sync.Once
}

func newGate(l *net.TCPListener) *gate {
	g := &gate{TCPListener: l, open: make(chan struct{}), closed: make(chan struct{})}
	close(g.open)
	return g
}

// Accept implements net.Listener.
func (g *gate) Accept() (net.Conn, error) {
	for {
		g.mu.Lock()
		open := g.open
		g.mu.Unlock()
		select {
		case <-open:
		case <-g.closed:
			return nil, net.ErrClosed
		}
		c, err := g.TCPListener.Accept()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			continue // the gate was shut, and may be open again
		}
		return c, err
	}
}

// Close implements net.Listener.
func (g *gate) Close() error {
	g.once.Do(func() { close(g.closed) })
	return g.TCPListener.Close()
}

// set opens or shuts the gate. What was accepted before stays.
func (g *gate) set(open bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	was := false
	select {
	case <-g.open:
		was = true
	default:
	}
	switch {
	case open && !was:
		_ = g.SetDeadline(time.Time{}) // it fails for a closed listener only
		close(g.open)
	case !open && was:
		g.open = make(chan struct{})
		_ = g.SetDeadline(time.Unix(1, 0))
	}
}
