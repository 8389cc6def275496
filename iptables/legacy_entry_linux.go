package iptables

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/google/nftables/xt"
	"golang.org/x/sys/unix"
)

// A legacyRule is a rule of iptables-legacy. The one that stands for a chain's policy or end is among them, as the last of
// its chain.
type legacyRule struct {
	chain    string
	position int
	to       netip.Prefix // destination; of length 0: any
	toNot    bool         // any but that
	target   string       // an extension's name, or a verdict: "ACCEPT"
	jump     string       // the chain that it jumps to
	text     string       // about as iptables-legacy -S prints it
}

// names reports whether the rule is about packets to the address in particular.
func (r legacyRule) names(a netip.Addr) bool {
	return r.to.IsValid() && r.to.Bits() > 0 && !r.toNot && r.to.Contains(a)
}

// legacyEntry is struct ipt_entry or ip6t_entry.
type legacyEntry struct {
	rule   legacyRule
	size   int
	target string
	data   []byte // the target's
	jump   int    // offset in the table of what a jump leads to; 0: it is none
}

// legacyLayout says where the fields of struct ipt_entry and ip6t_entry lie on 64-bit machines.
type legacyLayout struct {
	addr, dst, mask, iface, ifaceMask, proto, invert, targetOffset, nextOffset, size int
}

func layoutOf(ipv6 bool) legacyLayout {
	if ipv6 {
		return legacyLayout{addr: 16, dst: 16, mask: 48, iface: 64, ifaceMask: 96, proto: 128, invert: 132, targetOffset: 140, nextOffset: 142, size: 168}
	}
	return legacyLayout{addr: 4, dst: 4, mask: 12, iface: 16, ifaceMask: 48, proto: 80, invert: 83, targetOffset: 88, nextOffset: 90, size: 112}
}

// The flags IPT_INV_VIA_IN, IPT_INV_DSTIP and XT_INV_PROTO.
const (
	legacyNotIn    = 0x01
	legacyNotTo    = 0x10
	legacyNotProto = 0x40

	legacyExtHead = 32 // struct xt_entry_match and xt_entry_target: size, name, revision
)

func parseLegacyEntry(b []byte, ipv6 bool) (legacyEntry, error) {
	var e legacyEntry
	l := layoutOf(ipv6)
	if len(b) < l.size {
		return e, errors.New("a rule is cut short")
	}
	target := int(binary.NativeEndian.Uint16(b[l.targetOffset:]))
	e.size = int(binary.NativeEndian.Uint16(b[l.nextOffset:]))
	if target < l.size || e.size < target+legacyExtHead || e.size > len(b) {
		return e, fmt.Errorf("a rule of %d bytes with a target at %d makes no sense", e.size, target)
	}
	inverted := b[l.invert]
	var words []string
	not := func(flag byte) string {
		if inverted&flag != 0 {
			return "! "
		}
		return ""
	}
	e.rule.to, e.rule.toNot = destination(b[l.dst:l.dst+l.addr], b[l.mask:l.mask+l.addr]), inverted&legacyNotTo != 0
	if e.rule.to.Bits() > 0 {
		words = append(words, not(legacyNotTo)+"-d "+e.rule.to.String())
	}
	if name := interfaceName(b[l.iface:l.iface+unix.IFNAMSIZ], b[l.ifaceMask:l.ifaceMask+unix.IFNAMSIZ]); name != "" {
		words = append(words, not(legacyNotIn)+"-i "+name)
	}
	if proto := binary.NativeEndian.Uint16(b[l.proto:]); proto != 0 {
		words = append(words, not(legacyNotProto)+"-p "+protocolName(proto))
	}
	family := xt.TableFamily(unix.NFPROTO_IPV4)
	if ipv6 {
		family = unix.NFPROTO_IPV6
	}
	for at := l.size; at < target; {
		name, data, revision, size, err := legacyExtension(b[at:target])
		if err != nil {
			return e, err
		}
		words = append(words, legacyMatch(name, family, revision, data))
		at += size
	}
	name, data, revision, _, err := legacyExtension(b[target:e.size])
	if err != nil {
		return e, err
	}
	e.target, e.data = name, data
	switch {
	case name == "" && len(data) >= 4: // the standard target: a verdict, or an offset
		verdict := int32(binary.NativeEndian.Uint32(data))
		if verdict >= 0 {
			e.jump = int(verdict)
			words = append(words, "[jump]")
		} else {
			e.rule.target = map[int32]string{-1: "DROP", -2: "ACCEPT", -4: "QUEUE", -5: "RETURN"}[verdict]
			words = append(words, "-j "+e.rule.target)
		}
	default:
		e.rule.target = name
		words = append(words, "-j "+legacyTarget(name, family, revision, data))
	}
	e.rule.text = strings.Join(words, " ")
	return e, nil
}

// legacyExtension takes apart a struct xt_entry_match or xt_entry_target.
func legacyExtension(b []byte) (name string, data []byte, revision uint32, size int, err error) {
	if len(b) < legacyExtHead {
		return "", nil, 0, 0, errors.New("an extension is cut short")
	}
	size = int(binary.NativeEndian.Uint16(b))
	if size < legacyExtHead || size > len(b) {
		return "", nil, 0, 0, fmt.Errorf("an extension of %d bytes makes no sense", size)
	}
	raw, _, _ := bytes.Cut(b[2:legacyExtHead-1], []byte{0})
	return string(raw), b[legacyExtHead:size], uint32(b[legacyExtHead-1]), size, nil
}

func legacyMatch(name string, family xt.TableFamily, revision uint32, data []byte) string {
	info, err := xt.Unmarshal(name, family, revision, data)
	switch info := info.(type) {
	case *xt.Tcp:
		if err == nil && info.DstPorts[0] == info.DstPorts[1] {
			return fmt.Sprintf("--dport %d", info.DstPorts[0])
		}
	case *xt.Comment:
		if err == nil {
			return fmt.Sprintf("--comment %q", strings.TrimRight(string(*info), "\x00"))
		}
	}
	return fmt.Sprintf("[-m %s]", name)
}

func legacyTarget(name string, family xt.TableFamily, revision uint32, data []byte) string {
	info, err := xt.Unmarshal(name, family, revision, data)
	if err != nil {
		return name
	}
	switch info := info.(type) {
	case *xt.NatIPv4MultiRangeCompat:
		if len(*info) == 1 {
			return fmt.Sprintf("%s --to-destination %s", name, natRange(xt.NatRange((*info)[0])))
		}
	case *xt.NatRange:
		return fmt.Sprintf("%s --to-destination %s", name, natRange(*info))
	case *xt.NatRange2:
		return fmt.Sprintf("%s --to-destination %s", name, natRange(info.NatRange))
	}
	return name
}

// destination makes a prefix of an address and its mask. A mask with holes counts as far as it has none.
func destination(address, mask []byte) netip.Prefix {
	a, ok := netip.AddrFromSlice(address)
	if !ok {
		return netip.Prefix{}
	}
	bits := 0
	for _, m := range mask {
		for bit := byte(0x80); bit != 0; bit >>= 1 {
			if m&bit == 0 {
				return netip.PrefixFrom(a, bits).Masked()
			}
			bits++
		}
	}
	return netip.PrefixFrom(a, bits)
}

// interfaceName is the name that packets have to arrive by, if any is compared; iptables keeps the + of a prefix in it.
func interfaceName(name, mask []byte) string {
	if mask[0] == 0 {
		return ""
	}
	text, _, _ := bytes.Cut(name, []byte{0})
	return string(text)
}

func protocolName(p uint16) string {
	switch p {
	case unix.IPPROTO_TCP:
		return "tcp"
	case unix.IPPROTO_UDP:
		return "udp"
	case unix.IPPROTO_ICMP:
		return "icmp"
	case unix.IPPROTO_ICMPV6:
		return "ipv6-icmp"
	}
	return fmt.Sprint(p)
}
