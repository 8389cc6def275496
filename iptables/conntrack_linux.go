package iptables

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
)

// CutOver deletes from conntrack the connections to the metadata addresses that are answered by somebody else than our
// proxy, and returns how many. They were opened before the rules were in, and NAT decides on a connection's first packet
// only; deleted, their next packet meets the rules, and the pod's client is reset and connects anew. The host's own
// connections are left alone. Apply calls it when rules go in for the first time; after a repair it must not be called,
// because it would cut what is in flight.
func (r *Redirect) CutOver(ctx context.Context) (int, error) {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return 0, fmt.Errorf("listing the node's addresses: %w", err)
	}
	old := oldConnections{plan: r.plan()}
	for _, a := range addrs {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			old.host = append(old.host, p.Addr())
		}
	}
	var (
		total int
		errs  []error
	)
	for _, family := range []netlink.InetFamily{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		if err := ctx.Err(); err != nil {
			return total, fmt.Errorf("cutting old connections: %w", err)
		}
		n, err := netlink.ConntrackDeleteFilters(netlink.ConntrackTable, family, old)
		total += int(n)
		if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) { // others came and went meanwhile; what was read is done
			errs = append(errs, fmt.Errorf("cutting old connections: %w", explain(err)))
		}
	}
	return total, errors.Join(errs...)
}

// oldConnections matches the flows to cut.
type oldConnections struct {
	plan plan
	host []netip.Addr
}

// MatchConntrackFlow implements netlink.CustomConntrackFilter.
func (o oldConnections) MatchConntrackFlow(f *netlink.ConntrackFlow) bool {
	to, from := addrOf(f.Forward.DstIP), addrOf(f.Forward.SrcIP)
	if !slices.Contains(o.plan.lock, to) || slices.Contains(o.host, from) {
		return false
	}
	answers := netip.AddrPortFrom(addrOf(f.Reverse.SrcIP), f.Reverse.SrcPort)
	return !slices.ContainsFunc(o.plan.redirect, func(r redirect) bool { return r.to == answers })
}

func addrOf(ip net.IP) netip.Addr {
	a, _ := netip.AddrFromSlice(ip)
	return a.Unmap()
}
