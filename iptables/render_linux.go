package iptables

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// Where the fields lie in the headers of IPv4, IPv6 and TCP (RFC 791, 8200, 9293).
const (
	saddrOffset4 = 12
	saddrOffset6 = 8
	daddrOffset4 = 16
	daddrOffset6 = 24
	sportOffset  = 0
	dportOffset  = 2
)

// chainHeader writes the first line of a chain as nft does; "" for one that is only jumped to.
func chainHeader(c *nftables.Chain) string {
	if c.Hooknum == nil || c.Priority == nil {
		return ""
	}
	hook := fmt.Sprintf("hook %d", *c.Hooknum)
	switch *c.Hooknum {
	case *nftables.ChainHookPrerouting:
		hook = "hook prerouting"
	case *nftables.ChainHookOutput:
		hook = "hook output"
	}
	priority := fmt.Sprint(int32(*c.Priority))
	if *c.Priority == manglePriority {
		priority = "mangle"
	}
	if d := *c.Priority - dstnat; d >= -10 && d <= 10 {
		priority = "dstnat"
		if d < 0 {
			priority = fmt.Sprintf("dstnat - %d", -d)
		} else if d > 0 {
			priority = fmt.Sprintf("dstnat + %d", d)
		}
	}
	policy := "accept"
	if c.Policy != nil && *c.Policy == nftables.ChainPolicyDrop {
		policy = "drop"
	}
	return fmt.Sprintf("type %s %s priority %s; policy %s;", c.Type, hook, priority, policy)
}

// A rendering turns a rule's expressions into text. They are instructions for registers: what was loaded is named when it
// is compared. Whatever is not understood to the last field is printed in brackets, so that two rules with the same text
// do the same.
type rendering struct {
	words   []string
	loaded  map[uint32]any // :: register -> the expression that filled it
	ip      string         // "ip" or "ip6" once that is known
	pending string         // "meta nfproto ipv4", until a field of IPv4 makes it go without saying
	l4      string         // "tcp" or "udp" once that is known, and until a port makes it go without saying
}

// text is the rule as nft prints it, less its counters' values.
func (r heldRule) text() string {
	b := &rendering{loaded: map[uint32]any{}}
	switch r.family { //nolint:exhaustive // in the others the rule itself says which protocol it is about
	case nftables.TableFamilyIPv4:
		b.ip = "ip"
	case nftables.TableFamilyIPv6:
		b.ip = "ip6"
	}
	for _, e := range r.exprs {
		b.add(e)
	}
	b.settle()
	if r.comment != "" {
		b.say("comment %q", r.comment)
	}
	return strings.Join(b.words, " ")
}

func (b *rendering) say(format string, args ...any) {
	b.words = append(b.words, fmt.Sprintf(format, args...))
}

// settle prints what did not go without saying after all.
func (b *rendering) settle() {
	if b.pending != "" {
		b.say("%s", b.pending)
		b.pending = ""
	}
	if b.l4 != "" {
		b.say("meta l4proto %s", b.l4)
		b.l4 = ""
	}
}

func (b *rendering) add(e any) {
	switch e := e.(type) {
	case *expr.Meta:
		if e.SourceRegister {
			b.settle()
			if bits, ok := marks(b.loaded[e.Register]); ok && e.Key == expr.MetaKeyMARK {
				b.say("meta mark set meta mark | %#08x", bits)
				return
			}
			b.say("[meta %d set]", e.Key)
			return
		}
		b.loaded[e.Register] = e
	case *expr.Payload:
		if e.OperationType == expr.PayloadWrite {
			b.settle()
			b.say("[payload set]")
			return
		}
		b.loaded[e.DestRegister] = e
	case *expr.Immediate:
		b.loaded[e.Register] = e
	case *expr.Bitwise:
		b.loaded[e.DestRegister] = masked{of: b.loaded[e.SourceRegister], by: e}
	case *expr.Cmp:
		b.compare(e)
	case *expr.NAT:
		b.settle()
		b.nat(e)
	case *expr.Lookup:
		b.lookup(e)
	default:
		b.settle()
		b.say("%s", statement(e))
	}
}

type masked struct {
	of any
	by *expr.Bitwise
}

func (b *rendering) compare(c *expr.Cmp) {
	op, known := map[expr.CmpOp]string{expr.CmpOpEq: "", expr.CmpOpNeq: "!= "}[c.Op]
	if !known {
		op = fmt.Sprintf("[op %d] ", c.Op)
	}
	switch from := b.loaded[c.Register].(type) {
	case *expr.Meta:
		b.compareMeta(from.Key, op, c.Data)
		return
	case *expr.Payload:
		if b.comparePayload(from, op, c.Data) {
			return
		}
		b.settle()
		b.say("[@%d,%d,%d] %s%#x", from.Base, from.Offset*8, from.Len*8, op, c.Data)
		return
	case masked:
		if p, ok := from.of.(*expr.Payload); ok {
			if bits, ok := prefixLength(from.by, len(c.Data)); ok && b.address(p, op, c.Data, bits) {
				return
			}
			b.settle()
			b.say("[@%d,%d,%d & %#x ^ %#x] %s%#x", p.Base, p.Offset*8, p.Len*8, from.by.Mask, from.by.Xor, op, c.Data)
			return
		}
	}
	b.settle()
	b.say("[register %d] %s%#x", c.Register, op, c.Data)
}

func (b *rendering) compareMeta(key expr.MetaKey, op string, data []byte) {
	switch {
	case key == expr.MetaKeyNFPROTO && op == "" && b.ip == "" && len(data) == 1 && (data[0] == unix.NFPROTO_IPV4 || data[0] == unix.NFPROTO_IPV6):
		b.settle()
		b.ip, b.pending = "ip", "meta nfproto ipv4"
		if data[0] == unix.NFPROTO_IPV6 {
			b.ip, b.pending = "ip6", "meta nfproto ipv6"
		}
	case key == expr.MetaKeyL4PROTO && op == "" && b.l4 == "" && len(data) == 1 && (data[0] == unix.IPPROTO_TCP || data[0] == unix.IPPROTO_UDP):
		b.settle()
		b.l4 = "tcp"
		if data[0] == unix.IPPROTO_UDP {
			b.l4 = "udp"
		}
	case key == expr.MetaKeyIIFNAME || key == expr.MetaKeyOIFNAME:
		b.settle()
		word := "iifname"
		if key == expr.MetaKeyOIFNAME {
			word = "oifname"
		}
		name, rest, whole := bytes.Cut(data, []byte{0})
		switch {
		case !whole && len(data) < unix.IFNAMSIZ:
			b.say("%s %s%q", word, op, string(name)+"*")
		case len(bytes.Trim(rest, "\x00")) > 0 || len(data) != unix.IFNAMSIZ:
			b.say("[%s %s%q]", word, op, data)
		default:
			b.say("%s %s%q", word, op, name)
		}
	default:
		b.settle()
		b.say("[meta %d] %s%#x", key, op, data)
	}
}

// comparePayload names the fields that redirects are made of.
func (b *rendering) comparePayload(p *expr.Payload, op string, data []byte) bool {
	if int(p.Len) != len(data) {
		return false
	}
	switch {
	case b.address(p, op, data, len(data)*8):
	case p.Base == expr.PayloadBaseTransportHeader && b.l4 != "" && (p.Offset == dportOffset || p.Offset == sportOffset) && p.Len == 2:
		if b.pending != "" {
			b.say("%s", b.pending)
			b.pending = ""
		}
		port := "dport"
		if p.Offset == sportOffset {
			port = "sport"
		}
		b.say("%s %s %s%d", b.l4, port, op, binary.BigEndian.Uint16(data))
		b.l4 = ""
	default:
		return false
	}
	return true
}

// address renders a comparison of the destination or source with an address or, as far as bits go, a prefix. A prefix of
// whole bytes loads no more than these.
func (b *rendering) address(p *expr.Payload, op string, data []byte, bits int) bool {
	size, from, to := 4, uint32(saddrOffset4), uint32(daddrOffset4)
	if b.ip == "ip6" {
		size, from, to = 16, saddrOffset6, daddrOffset6
	}
	if b.ip == "" || p.Base != expr.PayloadBaseNetworkHeader || p.Offset != from && p.Offset != to || int(p.Len) != len(data) || len(data) > size {
		return false
	}
	field := "daddr"
	if p.Offset == from {
		field = "saddr"
	}
	a, _ := netip.AddrFromSlice(append(bytes.Clone(data), make([]byte, size-len(data))...))
	b.pending = ""
	if bits == size*8 {
		b.say("%s %s %s%s", b.ip, field, op, a)
	} else {
		b.say("%s %s %s%s", b.ip, field, op, netip.PrefixFrom(a, bits))
	}
	return true
}

// prefixLength returns how many leading bits the mask keeps, if it keeps nothing behind them and changes nothing.
func prefixLength(e *expr.Bitwise, size int) (int, bool) {
	if len(e.Mask) != size || len(bytes.Trim(e.Xor, "\x00")) > 0 {
		return 0, false
	}
	ones, bits := net.IPMask(e.Mask).Size()
	return ones, bits > 0
}
