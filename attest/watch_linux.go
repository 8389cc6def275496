package attest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// receiveBuffer is what each netlink socket may queue, in bytes: a node that starts or ends all of its pods at once
// sends some hundred kilobytes.
const receiveBuffer = 1 << 20

// Run follows the kernel's notifications until ctx ends. When the kernel drops some, because too many came at once,
// it subscribes anew and compares.
func (a *Attest) Run(ctx context.Context) error {
	for first := true; ; first = false {
		err := a.follow(ctx, first)
		if ctx.Err() != nil {
			return nil
		}
		a.restarts.Inc()
		if a.config.Log != nil {
			a.config.Log.WithError(err).Warn("kernel notifications were interrupted; reading its state anew")
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// follow subscribes, reads the state, and applies what comes, until ctx ends or a subscription breaks.
func (a *Attest) follow(ctx context.Context, first bool) error {
	done := make(chan struct{})
	links, routes, neighbours := make(chan netlink.LinkUpdate, 64), make(chan netlink.RouteUpdate, 64), make(chan netlink.NeighUpdate, 64)
	broken := make(chan error, 3)
	report := func(err error) {
		select {
		case broken <- err:
		default:
		}
	}
	started := 0
	defer func() {
		close(done)
		for ; started > 0; started-- { // each subscription's goroutine ends by closing its channel
			switch started {
			case 3:
				for range neighbours { //nolint:revive // drained
				}
			case 2:
				for range routes { //nolint:revive // drained
				}
			case 1:
				for range links { //nolint:revive // drained
				}
			}
		}
	}()
	if err := netlink.LinkSubscribeWithOptions(links, done, netlink.LinkSubscribeOptions{ErrorCallback: report, ReceiveBufferSize: receiveBuffer}); err != nil {
		return fmt.Errorf("subscribing to links: %w", err)
	}
	started++
	if err := netlink.RouteSubscribeWithOptions(routes, done, netlink.RouteSubscribeOptions{ErrorCallback: report, ReceiveBufferSize: receiveBuffer}); err != nil {
		return fmt.Errorf("subscribing to routes: %w", err)
	}
	started++
	if err := netlink.NeighSubscribeWithOptions(neighbours, done, netlink.NeighSubscribeOptions{ErrorCallback: report, ReceiveBufferSize: receiveBuffer}); err != nil {
		return fmt.Errorf("subscribing to neighbours: %w", err)
	}
	started++
	if err := a.read(first); err != nil {
		return err
	}
	a.once.Do(func() { close(a.ready) })
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-broken:
			return err
		case u, ok := <-links:
			if !ok {
				return errors.New("the subscription to links ended")
			}
			a.change(func(t *table, now time.Time) { linkUpdate(t, u, now) })
		case u, ok := <-routes:
			if !ok {
				return errors.New("the subscription to routes ended")
			}
			a.change(func(t *table, now time.Time) { routeUpdate(t, u.Type == unix.RTM_NEWROUTE, u.Route, now) })
		case u, ok := <-neighbours:
			if !ok {
				return errors.New("the subscription to neighbours ended")
			}
			a.change(func(t *table, now time.Time) { neighbourUpdate(t, u.Type == unix.RTM_NEWNEIGH, u.Neigh, now) })
		}
	}
}

// read compares the table with the kernel's state. What went away unseen ends now: later than it did, so no claim
// counts that should not.
func (a *Attest) read(first bool) error {
	links, err := netlink.LinkList()
	if err != nil {
		return fmt.Errorf("listing links: %w", err)
	}
	routes, err := netlink.RouteListFiltered(netlink.FAMILY_ALL, &netlink.Route{Table: unix.RT_TABLE_MAIN}, netlink.RT_FILTER_TABLE)
	if err != nil {
		return fmt.Errorf("listing routes: %w", err)
	}
	neighbours, err := netlink.NeighList(0, netlink.FAMILY_ALL)
	if err != nil {
		return fmt.Errorf("listing neighbours: %w", err)
	}
	forwarding, err := netlink.NeighList(0, unix.AF_BRIDGE)
	if err != nil {
		return fmt.Errorf("listing bridge forwarding: %w", err)
	}
	a.change(func(t *table, now time.Time) {
		alive := map[int]bool{}
		for _, l := range links {
			alive[l.Attrs().Index] = true
			born := now
			if first {
				born = time.Time{}
			}
			t.addLink(l.Attrs().Index, link{name: l.Attrs().Name, master: l.Attrs().MasterIndex, born: born})
		}
		for index := range t.links {
			if !alive[index] {
				t.dropLink(index, now)
			}
		}
		there := map[netip.Addr]bool{}
		for _, r := range routes {
			if addr, ok := hostRoute(r); ok {
				there[addr] = true
				t.addRoute(addr, r.LinkIndex, now)
			}
		}
		for addr, index := range t.routes {
			if !there[addr] {
				t.dropRoute(addr, index, now)
			}
		}
		for _, n := range append(forwarding, neighbours...) {
			neighbourUpdate(t, true, n, now)
		}
	})
	return nil
}

func linkUpdate(t *table, u netlink.LinkUpdate, now time.Time) {
	if u.IfInfomsg.Family == unix.AF_BRIDGE { // a port's bridge settings; its life is told by the other messages
		return
	}
	index := u.Link.Attrs().Index
	if u.Header.Type == unix.RTM_DELLINK {
		t.dropLink(index, now)
		return
	}
	t.addLink(index, link{name: u.Link.Attrs().Name, master: u.Link.Attrs().MasterIndex, born: now})
}

func routeUpdate(t *table, added bool, r netlink.Route, now time.Time) {
	addr, ok := hostRoute(r)
	switch {
	case !ok:
	case added:
		t.addRoute(addr, r.LinkIndex, now)
	default:
		t.dropRoute(addr, r.LinkIndex, now)
	}
}

// hostRoute returns the address of a route to exactly one address through an interface, as CNI plugins make for pods.
func hostRoute(r netlink.Route) (netip.Addr, bool) {
	if r.Dst == nil || r.LinkIndex == 0 || r.Type != unix.RTN_UNICAST || r.Table != unix.RT_TABLE_MAIN || len(r.Gw) > 0 {
		return netip.Addr{}, false
	}
	if ones, bits := r.Dst.Mask.Size(); ones != bits || bits == 0 {
		return netip.Addr{}, false
	}
	return address(r.Dst.IP)
}

func neighbourUpdate(t *table, added bool, n netlink.Neigh, now time.Time) {
	mac := n.HardwareAddr.String()
	if n.Family == unix.AF_BRIDGE {
		if n.MasterIndex == 0 || mac == "" {
			return
		}
		if s := (seat{n.MasterIndex, mac}); added {
			t.addForwarding(s, n.LinkIndex, now)
		} else {
			t.dropForwarding(s, n.LinkIndex)
		}
		return
	}
	addr, ok := address(n.IP)
	if !ok {
		return
	}
	if added && mac != "" && n.State&(netlink.NUD_FAILED|netlink.NUD_INCOMPLETE|netlink.NUD_NOARP) == 0 {
		t.addNeighbour(addr, station{n.LinkIndex, mac}, now)
	} else {
		t.dropNeighbour(addr)
	}
}

func address(ip net.IP) (netip.Addr, bool) {
	addr, ok := netip.AddrFromSlice(ip)
	return addr.Unmap(), ok && !addr.IsMulticast()
}
