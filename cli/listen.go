package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"syscall"

	"pod2role/config"
)

// listeners are the daemon's open sockets. They are opened before the daemon is assembled and handed to it, so that they
// may as well come from somewhere else.
type listeners struct {
	app     net.Listener // for pods
	metrics net.Listener // for the kubelet and Prometheus
	debug   net.Listener // for the operator; may be nil
}

// listen opens what the configuration says, or nothing if it cannot open everything.
func listen(ctx context.Context, c config.Config) (l listeners, err error) {
	defer func() {
		if err != nil {
			l.close()
			l = listeners{}
		}
	}()
	for _, open := range []struct {
		to   *net.Listener
		addr string
		flag string
		hint string
	}{
		{&l.app, ":" + strconv.Itoa(int(c.AppPort)), "--app-port", "kube2iam and Kiam use port 8181; choose another port, or stop them"},
		{&l.metrics, ":" + strconv.Itoa(int(c.MetricsPort)), "--metrics-port", "choose another port"},
		{&l.debug, c.DebugAddr.String(), "--debug-addr", "choose another port"},
	} {
		if open.flag == "--debug-addr" && !c.DebugAddr.IsValid() {
			continue
		}
		var plain net.ListenConfig
		plain.SetMultipathTCP(false) // its sockets do not tell where a connection came in: see attest.WithIngress
		*open.to, err = plain.Listen(ctx, "tcp", open.addr)
		if errors.Is(err, syscall.EADDRINUSE) {
			return l, fmt.Errorf("%s: %s is in use on this node: %s", open.flag, open.addr, open.hint)
		} else if err != nil {
			return l, fmt.Errorf("%s: opening %s: %w", open.flag, open.addr, err)
		}
	}
	return l, nil
}

func (l listeners) close() {
	for _, listener := range []net.Listener{l.app, l.metrics, l.debug} {
		if listener != nil {
			_ = listener.Close() // nothing was served on it
		}
	}
}

// hostAddrs returns the node's addresses to redirect to: those given, or else the source addresses of the default
// routes. Nothing is sent: connecting a UDP socket only looks up the route.
func hostAddrs(ctx context.Context, given []netip.Addr) ([]netip.Addr, error) {
	if len(given) > 0 {
		return given, nil
	}
	var found []netip.Addr
	for _, documentation := range []string{"192.0.2.1:9", "[2001:db8::1]:9"} { // RFC 5737, RFC 3849
		conn, err := new(net.Dialer).DialContext(ctx, "udp", documentation)
		if err != nil {
			continue // no route in this family
		}
		if a, err := netip.ParseAddrPort(conn.LocalAddr().String()); err == nil && a.Addr().IsGlobalUnicast() {
			found = append(found, a.Addr().Unmap())
		}
		_ = conn.Close()
	}
	if len(found) == 0 {
		return nil, errors.New("looking up this node's address: there is no default route; give it with --host-ip")
	}
	return found, nil
}
