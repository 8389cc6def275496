package iptables

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"

	"golang.org/x/sys/unix"
)

// ip6tOriginalDst is IP6T_SO_ORIGINAL_DST of linux/netfilter_ipv6/ip6_tables.h.
const ip6tOriginalDst = 80

// OriginalDestination returns the address and port that the peer of an accepted connection had dialled, before DNAT. The
// error wraps ErrNotRedirected if that was the connection's own local address. The connection must be one of the
// standard library, or have its method SyscallConn.
func OriginalDestination(c net.Conn) (netip.AddrPort, error) {
	sc, ok := c.(syscall.Conn)
	if !ok {
		return netip.AddrPort{}, fmt.Errorf("reading the original destination: a %T is no socket", c)
	}
	local, err := netip.ParseAddrPort(c.LocalAddr().String())
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("reading the original destination: %w", err)
	}
	local = netip.AddrPortFrom(local.Addr().Unmap().WithZone(""), local.Port())
	raw, err := sc.SyscallConn()
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("reading the original destination: %w", err)
	}
	var to netip.AddrPort
	var sockErr error
	if err := raw.Control(func(fd uintptr) { to, sockErr = originalDst(int(fd), local.Addr().Is4()) }); err != nil {
		return netip.AddrPort{}, fmt.Errorf("reading the original destination: %w", err)
	}
	switch {
	case errors.Is(sockErr, unix.ENOENT), // conntrack does not know the connection
		errors.Is(sockErr, unix.ENOPROTOOPT), // nothing in this namespace uses conntrack
		sockErr == nil && to == local:
		return netip.AddrPort{}, fmt.Errorf("%s: %w", local, ErrNotRedirected)
	case sockErr != nil:
		return netip.AddrPort{}, fmt.Errorf("reading the original destination: %w", sockErr)
	}
	return to, nil
}

// originalDst borrows, for the kernel's sockaddr_in and sockaddr_in6, two structures of the same shape and at least their
// size for which x/sys/unix has a getsockopt.
func originalDst(fd int, ipv4 bool) (netip.AddrPort, error) {
	if ipv4 {
		in, err := unix.GetsockoptIPv6Mreq(fd, unix.SOL_IP, unix.SO_ORIGINAL_DST)
		if err != nil {
			return netip.AddrPort{}, err
		}
		sa := in.Multiaddr // family, port, address
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(sa[4:8])), binary.BigEndian.Uint16(sa[2:4])), nil
	}
	in6, err := unix.GetsockoptIPv6MTUInfo(fd, unix.SOL_IPV6, ip6tOriginalDst)
	if err != nil {
		return netip.AddrPort{}, err
	}
	port := binary.BigEndian.Uint16(binary.NativeEndian.AppendUint16(nil, in6.Addr.Port))
	return netip.AddrPortFrom(netip.AddrFrom16(in6.Addr.Addr).Unmap(), port), nil
}
