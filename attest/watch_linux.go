package attest

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Run follows the kernel's notifications until ctx ends. When the kernel drops some, because too many came at once,
// it subscribes anew and compares.
func (a *Attest) Run(ctx context.Context) error {
	for {
		err := a.follow(ctx)
		if ctx.Err() != nil {
			return nil
		}
		a.lose()
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

// follow subscribes, reads the state, and applies what comes, until ctx ends or the subscription breaks.
func (a *Attest) follow(ctx context.Context) error {
	if err := a.notifications.subscribe(); err != nil {
		return err
	}
	defer a.notifications.close()
	if err := a.read(); err != nil {
		return err
	}
	a.once.Do(func() { close(a.ready) })
	return a.receive(ctx)
}

// lose says that notifications have been lost, until the state has been read anew.
func (a *Attest) lose() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.table.deaf = true
}

// read compares the table with the kernel's state. What went away unseen ends now: later than it did, so no claim
// counts that should not.
func (a *Attest) read() error {
	first := true
	select {
	case <-a.ready:
		first = false
	default:
	}
	// Nobody may apply a notification that is newer than what is read here.
	a.notifications.mu.Lock()
	defer a.notifications.mu.Unlock()
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
		t.deaf = false
		if !first {
			t.lost = now
		}
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
		clear(t.forwarding) // what is gone from it would vouch for an address; the places stay
		clear(t.neighbours)
		for _, n := range append(forwarding, neighbours...) {
			neighbourUpdate(t, true, n, now)
		}
	})
	return nil
}

// apply takes in one message of the kernel, which may hold several notifications.
func (a *Attest) apply(message []byte) error {
	parts, err := syscall.ParseNetlinkMessage(message)
	if err != nil {
		return err
	}
	a.change(func(t *table, now time.Time) {
		for _, part := range parts {
			if err = t.take(part, now); err != nil {
				return
			}
		}
	})
	return err
}

// take takes in one notification.
func (t *table) take(m syscall.NetlinkMessage, now time.Time) error {
	switch m.Header.Type {
	case unix.RTM_NEWLINK, unix.RTM_DELLINK:
		header := unix.NlMsghdr(m.Header)
		l, err := netlink.LinkDeserialize(&header, m.Data)
		if err != nil {
			return err
		}
		linkUpdate(t, netlink.LinkUpdate{IfInfomsg: *nl.DeserializeIfInfomsg(m.Data), Header: header, Link: l}, now)
	case unix.RTM_NEWROUTE, unix.RTM_DELROUTE:
		r, err := route(m.Data)
		if err != nil {
			return err
		}
		routeUpdate(t, m.Header.Type == unix.RTM_NEWROUTE, r, now)
	case unix.RTM_NEWNEIGH, unix.RTM_DELNEIGH:
		n, err := netlink.NeighDeserialize(m.Data)
		if err != nil {
			return err
		}
		neighbourUpdate(t, m.Header.Type == unix.RTM_NEWNEIGH, *n, now)
	}
	return nil
}

// route reads of a route what hostRoute looks at.
func route(data []byte) (netlink.Route, error) {
	message := nl.DeserializeRtMsg(data)
	attributes, err := nl.ParseRouteAttr(data[message.Len():])
	if err != nil {
		return netlink.Route{}, err
	}
	r := netlink.Route{Table: int(message.Table), Type: int(message.Type)}
	for _, attribute := range attributes {
		switch attribute.Attr.Type {
		case unix.RTA_DST:
			r.Dst = &net.IPNet{IP: attribute.Value, Mask: net.CIDRMask(int(message.Dst_len), 8*len(attribute.Value))}
		case unix.RTA_GATEWAY, unix.RTA_VIA:
			r.Gw = attribute.Value
		case unix.RTA_OIF:
			r.LinkIndex = int(binary.NativeEndian.Uint32(attribute.Value))
		case unix.RTA_TABLE:
			r.Table = int(binary.NativeEndian.Uint32(attribute.Value))
		}
	}
	return r, nil
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
		if n.MasterIndex == 0 || mac == "" || n.State&netlink.NUD_PERMANENT != 0 { // the bridge's own
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
	if !ok || addr.Is6() && addr.IsLinkLocalUnicast() { // each link has its own; no pod is known by one
		return
	}
	if added && mac != "" && n.State&(netlink.NUD_FAILED|netlink.NUD_INCOMPLETE|netlink.NUD_NOARP) == 0 {
		t.addNeighbour(addr, seat{n.LinkIndex, mac}, now)
	} else {
		t.dropNeighbour(addr)
	}
}

func address(ip net.IP) (netip.Addr, bool) {
	addr, ok := netip.AddrFromSlice(ip)
	return addr.Unmap(), ok && !addr.IsMulticast()
}
