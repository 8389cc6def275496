package iptables

import (
	"bytes"
	"fmt"
	"math"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
)

func (nft) survey(p plan) ([]Rule, []string, error) {
	return standpoint{priority: redirectPriority}.survey(p)
}

// surveyNft looks at what nf_tables holds, whoever put it there.
func (s standpoint) surveyNft(p plan) (rules []seenRule, entrances []entrance, warnings []string, err error) {
	c, err := nftables.New(nftables.WithSockOptions(withDeadline))
	if err != nil {
		return nil, nil, nil, err
	}
	chains, err := c.ListChains()
	if err != nil {
		return nil, nil, nil, fmt.Errorf("listing chains: %w", err)
	}
	held, err := dumpRules(nftables.TableFamilyUnspecified, "")
	if err != nil {
		return nil, nil, nil, err
	}
	sets := setReader{conn: c, read: map[place]addressSet{}}
	position := map[place]int{}
	for _, r := range held {
		at := place{familyName(r.family) + " " + r.table, r.chain}
		position[at]++
		rule := seenRule{place: at, position: position[at], diverts: diverts(r), text: r.text()}
		for _, e := range r.exprs {
			if v, ok := e.(*expr.Verdict); ok && v.Chain != "" {
				rule.jumps = append(rule.jumps, v.Chain)
			}
		}
		for _, a := range p.lock {
			rule.about = rule.about || names(r, a, sets.contains)
		}
		rules = append(rules, rule)
	}
	for _, chain := range chains {
		at := place{familyName(chain.Table.Family) + " " + chain.Table.Name, chain.Name}
		if at.ownTable() || !s.consultedFirst(chain) {
			continue
		}
		e := entrance{at, math.MaxInt}
		if s.kind == kindNft && chain.Table.Name == "nat" && chain.Type == nftables.ChainTypeNAT {
			e.until = beforeOurs(rules, at)
		}
		if chain.Type == nftables.ChainTypeNAT && (s.kind == "" || *chain.Priority < s.priority) {
			warnings = append(warnings, fmt.Sprintf("the nat chain %s %s is consulted before ours", at.table, at.chain))
		}
		entrances = append(entrances, e)
	}
	return rules, entrances, warnings, nil
}

// consultedFirst reports whether packets meet the base chain before they meet our redirect. At equal priority the chain
// that came later is consulted first. Other kinds of chains come before all NAT up to priority dstnat.
func (s standpoint) consultedFirst(c *nftables.Chain) bool {
	if c.Hooknum == nil || c.Priority == nil {
		return false
	}
	switch c.Table.Family { //nolint:exhaustive // ARP is not for IP packets
	case nftables.TableFamilyNetdev:
		return *c.Hooknum == *nftables.ChainHookIngress
	case nftables.TableFamilyIPv4, nftables.TableFamilyIPv6, nftables.TableFamilyINet, nftables.TableFamilyBridge:
		if *c.Hooknum != *nftables.ChainHookPrerouting {
			return false
		}
	default:
		return false
	}
	if c.Type == nftables.ChainTypeNAT {
		return *c.Priority <= s.priority
	}
	return *c.Priority <= dstnat
}

// diverts reports whether the rule can keep a packet from our redirect: anything but counting, and but an accept, which
// ends only the chain that it is in.
func diverts(r heldRule) bool {
	for _, e := range r.exprs {
		switch e := e.(type) {
		case *expr.Meta, *expr.Payload, *expr.Bitwise, *expr.Cmp, *expr.Counter, *expr.Immediate, *expr.Match:
		case *expr.Lookup:
			if e.IsDestRegSet { // a verdict for each element
				return true
			}
		case *expr.Verdict:
			if e.Kind == expr.VerdictDrop || e.Chain != "" {
				return true
			}
		default:
			return true
		}
	}
	return false
}

// names reports whether the rule compares the destination with the address, with a prefix that the address is in, or with
// a set of which inSet says that the address is in it.
func names(r heldRule, a netip.Addr, inSet func(r heldRule, set string, a netip.Addr) bool) bool {
	offset := uint32(daddrOffset4)
	if a.Is6() {
		offset = daddrOffset6
	}
	if r.family == nftables.TableFamilyIPv4 && a.Is6() || r.family == nftables.TableFamilyIPv6 && a.Is4() {
		return false
	}
	loaded := map[uint32][]byte{} // :: register -> what the address would put there
	for _, e := range r.exprs {
		switch e := e.(type) {
		case *expr.Payload:
			delete(loaded, e.DestRegister)
			if e.Base == expr.PayloadBaseNetworkHeader && e.Offset == offset && int(e.Len) <= a.BitLen()/8 {
				loaded[e.DestRegister] = a.AsSlice()[:e.Len]
			}
		case *expr.Bitwise:
			value, ok := loaded[e.SourceRegister]
			delete(loaded, e.DestRegister)
			if ok && len(e.Mask) == len(value) && len(e.Xor) == len(value) {
				result := make([]byte, len(value))
				for i := range value {
					result[i] = value[i]&e.Mask[i] ^ e.Xor[i]
				}
				loaded[e.DestRegister] = result
			}
		case *expr.Meta:
			delete(loaded, e.Register)
		case *expr.Cmp:
			if value, ok := loaded[e.Register]; ok && bytes.Equal(value, e.Data) {
				return true
			}
		case *expr.Lookup:
			if value, ok := loaded[e.SourceRegister]; ok && len(value) == a.BitLen()/8 && !e.Invert && inSet(r, e.SetName, a) {
				return true
			}
		}
	}
	return false
}

// A setReader reads each set of addresses once.
type setReader struct {
	conn *nftables.Conn
	read map[place]addressSet
}

// An addressSet is a set's elements in their order. Of intervals, each element is where one begins or has ended.
type addressSet struct {
	intervals bool
	elements  []nftables.SetElement
}

// contains reports whether the set of the rule's table has the address. A set that is gone by now had no say.
func (s setReader) contains(r heldRule, set string, a netip.Addr) bool {
	key := place{familyName(r.family) + " " + r.table, set}
	known, ok := s.read[key]
	if !ok {
		table := &nftables.Table{Name: r.table, Family: r.family}
		if held, err := s.conn.GetSetByName(table, set); err == nil {
			known.intervals = held.Interval
			if known.elements, err = s.conn.GetSetElements(held); err != nil {
				known.elements = nil
			}
		}
		s.read[key] = known
	}
	return known.contains(a)
}

func (s addressSet) contains(a netip.Addr) bool {
	if !s.intervals {
		return slices.ContainsFunc(s.elements, func(e nftables.SetElement) bool { return bytes.Equal(e.Key, a.AsSlice()) })
	}
	// The last border at or below the address decides; where one interval ends and the next begins, the latter.
	var last *nftables.SetElement
	for i := range s.elements {
		e := &s.elements[i]
		if len(e.Key) != a.BitLen()/8 || bytes.Compare(e.Key, a.AsSlice()) > 0 {
			continue
		}
		if last != nil {
			if c := bytes.Compare(e.Key, last.Key); c < 0 || c == 0 && e.IntervalEnd {
				continue
			}
		}
		last = e
	}
	return last != nil && !last.IntervalEnd
}

func familyName(f nftables.TableFamily) string {
	switch f {
	case nftables.TableFamilyIPv4:
		return "ip"
	case nftables.TableFamilyIPv6:
		return "ip6"
	case nftables.TableFamilyINet:
		return "inet"
	case nftables.TableFamilyARP:
		return "arp"
	case nftables.TableFamilyBridge:
		return "bridge"
	case nftables.TableFamilyNetdev:
		return "netdev"
	case nftables.TableFamilyUnspecified:
	}
	return fmt.Sprintf("family %d", f)
}
