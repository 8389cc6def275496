package iptables

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"

	"github.com/google/nftables/expr"
	"github.com/google/nftables/xt"
	"golang.org/x/sys/unix"
)

// nat renders a DNAT to one address and port, which is all that we make; everything else in brackets.
func (b *rendering) nat(n *expr.NAT) {
	addr, _ := b.loaded[n.RegAddrMin].(*expr.Immediate)
	port, _ := b.loaded[n.RegProtoMin].(*expr.Immediate)
	simple := n.Type == expr.NATTypeDestNAT && addr != nil && port != nil && len(port.Data) == 2 &&
		(n.RegAddrMax == 0 || n.RegAddrMax == n.RegAddrMin) && (n.RegProtoMax == 0 || n.RegProtoMax == n.RegProtoMin) &&
		!n.Random && !n.FullyRandom && !n.Persistent && !n.Prefix
	a, ok := netip.Addr{}, false
	if simple {
		a, ok = netip.AddrFromSlice(addr.Data)
	}
	if !ok || a.Is4() != (n.Family == unix.NFPROTO_IPV4) {
		b.say("[nat %+v]", *n)
		return
	}
	family := "ip"
	if a.Is6() {
		family = "ip6"
	}
	b.say("dnat %s to %s", family, netip.AddrPortFrom(a, binary.BigEndian.Uint16(port.Data)))
}

// lookup prints what is looked for in a set. The set's elements are not part of the rule.
func (b *rendering) lookup(l *expr.Lookup) {
	op, in := "", "@"+l.SetName
	if l.Invert {
		op = "!= "
	}
	if l.IsDestRegSet {
		in = "vmap " + in
	}
	if p, ok := b.loaded[l.SourceRegister].(*expr.Payload); ok && p.Base == expr.PayloadBaseNetworkHeader &&
		(b.ip == "ip" && p.Offset == daddrOffset4 && p.Len == 4 || b.ip == "ip6" && p.Offset == daddrOffset6 && p.Len == 16) {
		b.pending = ""
		b.say("%s daddr %s%s", b.ip, op, in)
		return
	}
	b.settle()
	b.say("[register %d] %s%s", l.SourceRegister, op, in)
}

// marks returns the bits that are set in a mark of which the others stay.
func marks(loaded any) (uint32, bool) {
	m, ok := loaded.(masked)
	if !ok || len(m.by.Mask) != 4 || len(m.by.Xor) != 4 {
		return 0, false
	}
	of, ok := m.of.(*expr.Meta)
	bits := binary.NativeEndian.Uint32(m.by.Xor)
	return bits, ok && of.Key == expr.MetaKeyMARK && binary.NativeEndian.Uint32(m.by.Mask) == ^bits
}

// statement renders what needs no register.
func statement(e any) string {
	switch e := e.(type) {
	case *expr.Counter:
		return "counter"
	case *expr.Notrack:
		return "notrack"
	case *expr.Verdict:
		return verdict(e)
	case *expr.Reject:
		switch *e {
		case expr.Reject{Type: unix.NFT_REJECT_TCP_RST}:
			return "reject with tcp reset"
		case expr.Reject{Type: unix.NFT_REJECT_ICMPX_UNREACH, Code: unix.NFT_REJECT_ICMPX_ADMIN_PROHIBITED}:
			return "reject with icmpx admin-prohibited"
		}
		return fmt.Sprintf("[reject %d %d]", e.Type, e.Code)
	case *expr.Match:
		switch info := e.Info.(type) {
		case *xt.Comment:
			return fmt.Sprintf("[comment %q]", strings.TrimRight(string(*info), "\x00"))
		case *xt.Tcp:
			return fmt.Sprintf("[tcp dports %d-%d]", info.DstPorts[0], info.DstPorts[1])
		}
		return fmt.Sprintf("[match %s]", e.Name)
	case *expr.Target:
		switch info := e.Info.(type) {
		case *xt.NatRange:
			return fmt.Sprintf("[%s to %s]", e.Name, natRange(*info))
		case *xt.NatRange2:
			return fmt.Sprintf("[%s to %s]", e.Name, natRange(info.NatRange))
		}
		return fmt.Sprintf("[%s]", e.Name)
	case opaque:
		return fmt.Sprintf("[%s]", string(e))
	}
	return fmt.Sprintf("[%T]", e)
}

func natRange(r xt.NatRange) string {
	if a, ok := netip.AddrFromSlice(r.MinIP); ok {
		return netip.AddrPortFrom(a.Unmap(), r.MinPort).String()
	}
	return fmt.Sprintf(":%d", r.MinPort)
}

func verdict(v *expr.Verdict) string {
	switch v.Kind { //nolint:exhaustive // the others are not for rules
	case expr.VerdictAccept:
		return "accept"
	case expr.VerdictDrop:
		return "drop"
	case expr.VerdictReturn:
		return "return"
	case expr.VerdictContinue:
		return "continue"
	case expr.VerdictJump:
		return "jump " + v.Chain
	case expr.VerdictGoto:
		return "goto " + v.Chain
	}
	return fmt.Sprintf("[verdict %d]", v.Kind)
}
