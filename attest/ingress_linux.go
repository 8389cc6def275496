package attest

import (
	"encoding/binary"
	"net"
	"slices"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Ingress returns the index of the interface that a TCP connection came in by, and whether the kernel says so. Ask once
// for each connection.
//
// IPv4 tells it in IP_PKTOPTIONS, a control message buffer with the IP_PKTINFO of the connection's first packet, if the
// listener had IP_PKTINFO on: see [WithIngress]. For a bridged pod that is the bridge, for a routed one its veth. Of an
// IPv6 connection that a bridge has sent through the node's rules itself (br_netfilter, as Kubernetes nodes have it),
// the kernel names the interface that holds the address it was redirected to (net/ipv6/ip6_input.c, ip6_rcv_core),
// which tells nothing of where it came from: that is not known.
func Ingress(conn net.Conn) (index int, ok bool) {
	raw, isRaw := conn.(syscall.Conn)
	if !isRaw {
		return 0, false
	}
	control, err := raw.SyscallConn()
	if err != nil {
		return 0, false
	}
	err = control.Control(func(fd uintptr) {
		index, ok = pktInfo(int(fd), unix.IPPROTO_IP, unix.IP_PKTOPTIONS, unix.IP_PKTINFO)
		if !ok {
			index, ok = pktInfo(int(fd), unix.IPPROTO_IPV6, unix.IPV6_2292PKTOPTIONS, unix.IPV6_PKTINFO)
		}
	})
	if err != nil || !ok || holdsIPv6(index, conn.LocalAddr()) {
		return 0, false
	}
	return index, true
}

// holdsIPv6 says whether the interface has the address, and it is one of IPv6.
func holdsIPv6(index int, addr net.Addr) bool {
	tcp, ok := addr.(*net.TCPAddr)
	if !ok || tcp.IP.To4() != nil {
		return false
	}
	link, err := net.InterfaceByIndex(index)
	if err != nil {
		return false
	}
	addrs, err := link.Addrs()
	return err == nil && slices.ContainsFunc(addrs, func(a net.Addr) bool {
		prefix, isPrefix := a.(*net.IPNet)
		return isPrefix && prefix.IP.Equal(tcp.IP)
	})
}

// pktInfo asks a socket for its control messages and finds the interface index in the one of the given type.
func pktInfo(fd, level, option, message int) (index int, ok bool) {
	var buffer [256]byte
	length := uint32(len(buffer))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), uintptr(level), uintptr(option),
		uintptr(unsafe.Pointer(&buffer[0])), uintptr(unsafe.Pointer(&length)), 0)
	if errno != 0 || length == 0 {
		return 0, false
	}
	messages, err := unix.ParseSocketControlMessage(buffer[:length])
	if err != nil {
		return 0, false
	}
	for _, m := range messages {
		switch {
		case int(m.Header.Level) != level || int(m.Header.Type) != message:
		case level == unix.IPPROTO_IP && len(m.Data) >= 4: // struct in_pktinfo starts with ipi_ifindex
			index = int(int32(binary.NativeEndian.Uint32(m.Data)))
		case level == unix.IPPROTO_IPV6 && len(m.Data) >= 20: // struct in6_pktinfo: 16 bytes of address, then the index
			index = int(int32(binary.NativeEndian.Uint32(m.Data[16:])))
		}
	}
	return index, index > 0
}

// WithIngress makes the kernel remember, for connections that the listener accepts from now on, which interface they
// came in by. The listener must not use Multipath TCP, which knows no such option: Go does unless told not to.
func WithIngress(listener net.Listener) error {
	raw, ok := listener.(syscall.Conn)
	if !ok {
		return syscall.ENOTSUP
	}
	control, err := raw.SyscallConn()
	if err != nil {
		return err
	}
	var option error
	err = control.Control(func(fd uintptr) {
		v4 := unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_PKTINFO, 1)
		v6 := unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO, 1)
		if v4 != nil && v6 != nil {
			option = v4
		}
	})
	if err != nil {
		return err
	}
	return option
}
