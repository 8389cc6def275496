package iptables

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
)

// survey looks at every rule that nftables holds, those of iptables-nft among them, for one that names a metadata
// address. It sees addresses that a rule compares with, alone or by prefix; not those in sets.
func (nft) survey(p plan) ([]Rule, []string, error) {
	var (
		foreign  []Rule
		warnings []string
	)
	err := steadily(func() (err error) {
		foreign, warnings, err = survey(p)
		return err
	})
	if err != nil {
		return nil, nil, explain(err)
	}
	// iptables-legacy keeps its tables apart. Which ones exist is to be read here, but not what is in them.
	legacy, err := os.ReadFile("/proc/thread-self/net/ip_tables_names")
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission) {
		return nil, nil, fmt.Errorf("looking for iptables-legacy: %w", err)
	}
	if names := strings.Fields(string(legacy)); len(names) > 0 {
		warnings = append(warnings, fmt.Sprintf("iptables-legacy has tables too (%s), which are not looked into: see iptables-legacy-save", strings.Join(names, ", ")))
	}
	return foreign, warnings, nil
}

type chainID struct {
	family nftables.TableFamily
	table  string
	chain  string
}

func (c chainID) ours() bool {
	return c.family == nftables.TableFamilyINet && c.table == tableName && (c.chain == redirectChain || c.chain == lockChain)
}

func survey(p plan) ([]Rule, []string, error) {
	c, err := nftables.New(nftables.WithSockOptions(withDeadline))
	if err != nil {
		return nil, nil, err
	}
	chains, err := c.ListChains()
	if err != nil {
		return nil, nil, fmt.Errorf("listing chains: %w", err)
	}
	rules, err := dumpRules(nftables.TableFamilyUnspecified, "")
	if err != nil {
		return nil, nil, err
	}

	jumps := map[chainID][]chainID{}
	for _, r := range rules {
		for _, e := range r.exprs {
			if v, ok := e.(*expr.Verdict); ok && v.Chain != "" {
				jumps[r.id()] = append(jumps[r.id()], chainID{r.family, r.table, v.Chain})
			}
		}
	}
	ahead := map[chainID]bool{}
	var warnings []string
	for _, chain := range chains {
		id := chainID{chain.Table.Family, chain.Table.Name, chain.Name}
		if id.ours() || !consultedFirst(chain) {
			continue
		}
		if chain.Type == nftables.ChainTypeNAT {
			warnings = append(warnings, fmt.Sprintf("the nat chain %s %s %s is consulted before ours", familyName(id.family), id.table, id.chain))
		}
		reach(id, jumps, ahead)
	}

	var foreign []Rule
	position := map[chainID]int{}
	for _, r := range rules {
		id := r.id()
		position[id]++
		if id.ours() || !namesAny(r, p.lock) {
			continue
		}
		foreign = append(foreign, Rule{
			Table:    familyName(r.family) + " " + r.table,
			Chain:    r.chain,
			Position: position[id],
			Text:     r.text(),
			Ahead:    ahead[id] && diverts(r),
		})
	}
	return foreign, warnings, nil
}

func (r heldRule) id() chainID { return chainID{r.family, r.table, r.chain} }

// consultedFirst reports whether packets meet the base chain before they meet our redirect. At equal priority the chain
// that came later is consulted first. Other kinds of chains come before all NAT up to priority dstnat.
func consultedFirst(c *nftables.Chain) bool {
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
		return *c.Priority <= redirectPriority
	}
	return *c.Priority <= dstnat
}

// reach marks a chain and all those that it jumps to.
func reach(id chainID, jumps map[chainID][]chainID, seen map[chainID]bool) {
	if seen[id] {
		return
	}
	seen[id] = true
	for _, to := range jumps[id] {
		reach(to, jumps, seen)
	}
}

// diverts reports whether the rule can keep a packet from our redirect: anything but counting, and but an accept, which
// ends only the chain that it is in.
func diverts(r heldRule) bool {
	for _, e := range r.exprs {
		switch e := e.(type) {
		case *expr.Meta, *expr.Payload, *expr.Bitwise, *expr.Cmp, *expr.Counter, *expr.Immediate, *expr.Match:
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

func namesAny(r heldRule, addrs []netip.Addr) bool {
	for _, a := range addrs {
		if names(r, a) {
			return true
		}
	}
	return false
}

// names reports whether the rule compares the destination with the address, or with a prefix that the address is in.
func names(r heldRule, a netip.Addr) bool {
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
		}
	}
	return false
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
