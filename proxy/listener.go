package proxy

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"syscall"
	"time"
)

// turnedAway says why a connection is not served; it is a metric label.
type turnedAway string

const (
	tooManyConnections turnedAway = "total"
	tooManyFromSource  turnedAway = "source"
	notRedirected      turnedAway = "direct"
	noAddress          turnedAway = "no-address"
)

// Connections over the limit are told so, at most maxFarewells at a time, for at most farewell each.
const (
	farewell     = time.Second
	maxFarewells = 64
)

// conn is a connection from a client, with all that is known of it.
type conn struct {
	net.Conn
	addr     netip.Addr // the peer's, by TCP: nothing that a request says changes who is asking
	ifindex  int        // the interface it came in on; 0: not known
	direct   bool       // it was not redirected and is refused
	accepted time.Time
	caughtUp bool // Config.CatchUp was called
	source   *source

	exchange *exchange // the request that is being answered

	closing    sync.Once
	disconnect func()
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.closing.Do(c.disconnect)
	return c.Conn.Close()
}

// CloseWrite lets net/http end a connection so that the client can still read the answer.
func (c *conn) CloseWrite() error {
	if w, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return w.CloseWrite()
	}
	return nil
}

type connKey struct{}

// connOf returns the connection of a request.
func connOf(r *http.Request) *conn {
	c, _ := r.Context().Value(connKey{}).(*conn)
	return c
}

// listener gives out the connections that are within the limits.
type listener struct {
	net.Listener
	proxy *Proxy
}

// Accept implements net.Listener.
func (l listener) Accept() (net.Conn, error) {
	for {
		raw, err := l.Listener.Accept()
		if err != nil {
			return nil, err // as it is: net/http goes on after a temporary one
		}
		addr, ok := peer(raw)
		if !ok {
			l.proxy.metrics.turnedAway.WithLabelValues(string(noAddress)).Inc()
			_ = raw.Close()
			continue
		}
		src, why := l.proxy.sources.connect(addr, time.Now())
		if src == nil {
			l.proxy.metrics.turnedAway.WithLabelValues(string(why)).Inc()
			l.proxy.turnAway(raw)
			continue
		}
		return &conn{Conn: raw, addr: addr, accepted: time.Now(), source: src, disconnect: func() { l.proxy.sources.disconnect(src) }}, nil
	}
}

// peer returns the address at the other end of a connection, as the cluster would write it.
func peer(c net.Conn) (netip.Addr, bool) {
	if tcp, ok := c.RemoteAddr().(*net.TCPAddr); ok {
		addr := tcp.AddrPort().Addr()
		return addr.Unmap().WithZone(""), addr.IsValid()
	}
	ap, err := netip.ParseAddrPort(c.RemoteAddr().String())
	return ap.Addr().Unmap().WithZone(""), err == nil
}

// turnAway answers 503 and closes. It does not block; a client that does not read its answer does not get it.
func (p *Proxy) turnAway(c net.Conn) {
	select {
	case p.farewells <- struct{}{}:
	default:
		_ = c.Close()
		return
	}
	p.owned.Go(func() {
		defer func() { <-p.farewells }()
		defer func() { _ = c.Close() }()
		_ = c.SetDeadline(time.Now().Add(farewell))
		if _, err := c.Write(p.tooBusy); err != nil {
			return
		}
		if w, ok := c.(interface{ CloseWrite() error }); ok {
			_ = w.CloseWrite()
		}
		// Closing with unread input resets the connection, and the client might never see the answer.
		_, _ = io.CopyN(io.Discard, c, maxHeader)
	})
}

// inspect finds out, once for each connection, what does not change while it is open. It is the server's ConnContext.
func (p *Proxy) inspect(ctx context.Context, nc net.Conn) context.Context {
	c, ok := nc.(*conn)
	if !ok {
		return ctx // and then connOf finds nothing, which is refused
	}
	if p.cfg.Ingress != nil {
		c.ifindex = p.cfg.Ingress(c.Conn)
	}
	if p.cfg.Redirected != nil {
		redirected, err := p.cfg.Redirected(c.Conn)
		if !redirected || err != nil {
			c.direct = true
			p.metrics.turnedAway.WithLabelValues(string(notRedirected)).Inc()
			p.refusedDirect(c, err)
		}
	}
	return context.WithValue(ctx, connKey{}, c)
}

// setHopLimit sets the time-to-live of all that is sent on the connection from now on. It is never set back: an answer
// that a router dropped is sent again, and would then arrive.
func setHopLimit(c net.Conn, addr netip.Addr, limit int) error {
	sc, ok := c.(syscall.Conn)
	if !ok {
		return fmt.Errorf("setting the hop limit of a connection of type %T, which has none", c)
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return fmt.Errorf("setting the hop limit: %w", err)
	}
	level, option := syscall.IPPROTO_IP, syscall.IP_TTL
	if addr.Is6() {
		level, option = syscall.IPPROTO_IPV6, syscall.IPV6_UNICAST_HOPS
	}
	var failed error
	if err := raw.Control(func(fd uintptr) { failed = syscall.SetsockoptInt(int(fd), level, option, limit) }); err != nil {
		return fmt.Errorf("setting the hop limit: %w", err)
	} else if failed != nil {
		return fmt.Errorf("setting the hop limit: %w", failed)
	}
	return nil
}
