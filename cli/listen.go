package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"syscall"

	"pod2role/config"
	"pod2role/handover"
)

// listeners are the daemon's open sockets. They are opened before the daemon is assembled and handed to it, so that they
// may as well come from somewhere else.
type listeners struct {
	app     net.Listener // for pods; nil: to be had from the process before, or opened, see turn
	metrics net.Listener // for the kubelet and Prometheus
	debug   net.Listener // for the operator; may be nil
	probe   net.Listener // for "pod2role probe"; may be nil
}

// namedListener is one of the listeners, none if what it points to is nil.
type namedListener struct {
	name     string
	listener *net.Listener
}

// named returns the listeners that are handed over.
func (l *listeners) named() []namedListener {
	return []namedListener{{appSocket, &l.app}, {metricsSocket, &l.metrics}, {debugSocket, &l.debug}}
}

// open opens what the daemon needs from the start.
func open(ctx context.Context, c config.Config) (l listeners, err error) {
	if c.HandoverDir == "" {
		if l, err = listen(ctx, c, nil); err != nil {
			return listeners{}, err
		}
	}
	if c.ProbeSocket == "" {
		return l, nil
	}
	if l.probe, err = listenProbe(ctx, c.ProbeSocket); err != nil {
		l.close()
		return listeners{}, err
	}
	return l, nil
}

// listenProbe opens the socket for probes, in the place of one that this container's last process left behind.
func listenProbe(ctx context.Context, path string) (net.Listener, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("--probe-socket: opening %s: %w", path, err)
	}
	l, err := new(net.ListenConfig).Listen(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("--probe-socket: opening %s: %w", path, err)
	}
	return l, nil
}

// listen opens what the configuration says, or nothing if it cannot open everything. Of the sockets that are given, which
// are its to close, it takes those with the right address.
func listen(ctx context.Context, c config.Config, given []handover.Socket) (l listeners, err error) {
	defer func() {
		if err != nil {
			l.close()
			l = listeners{}
		}
		closeSockets(given)
	}()
	for _, socket := range []struct {
		to   *net.Listener
		name string
		addr string
		flag string
		hint string
	}{
		{&l.app, appSocket, ":" + strconv.Itoa(int(c.AppPort)), "--app-port", "kube2iam and Kiam use port 8181; choose another port, or stop them"},
		{&l.metrics, metricsSocket, ":" + strconv.Itoa(int(c.MetricsPort)), "--metrics-port", "choose another port"},
		{&l.debug, debugSocket, c.DebugAddr.String(), "--debug-addr", "choose another port"},
	} {
		if socket.name == debugSocket && !c.DebugAddr.IsValid() {
			continue
		}
		if i := slices.IndexFunc(given, func(s handover.Socket) bool { return s.Name == socket.name && listensOn(s.Listener, socket.addr) }); i >= 0 {
			*socket.to = given[i].Listener
			given = slices.Delete(given, i, i+1)
			continue
		}
		var plain net.ListenConfig
		plain.SetMultipathTCP(false) // its sockets do not tell where a connection came in: see attest.WithIngress
		*socket.to, err = plain.Listen(ctx, "tcp", socket.addr)
		if errors.Is(err, syscall.EADDRINUSE) {
			return l, fmt.Errorf("%s: %s is in use on this node: %s", socket.flag, socket.addr, socket.hint)
		} else if err != nil {
			return l, fmt.Errorf("%s: opening %s: %w", socket.flag, socket.addr, err)
		}
	}
	return l, nil
}

// listensOn says whether l is what listening on addr gives.
func listensOn(l net.Listener, addr string) bool {
	host, port, err := net.SplitHostPort(addr)
	got, ok := l.Addr().(*net.TCPAddr)
	if err != nil || !ok || port != strconv.Itoa(got.Port) {
		return false
	}
	if host == "" {
		return got.IP.IsUnspecified()
	}
	return got.IP.Equal(net.ParseIP(host))
}

func (l listeners) close() {
	for _, listener := range []net.Listener{l.app, l.metrics, l.debug, l.probe} {
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
