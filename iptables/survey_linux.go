package iptables

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/google/nftables"
)

// A standpoint is where our redirect is consulted, for telling who is before it.
type standpoint struct {
	priority nftables.ChainPriority
	kind     string // of iptables; "" if the redirect is in a table of our own
}

// A place is a chain, or with chain empty a table.
type place struct{ table, chain string } // table with its family: "ip nat", "legacy ip nat"

// An entrance is a chain from which packets come to know other rules before they come to our redirect: by its first until
// rules.
type entrance struct {
	place
	until int
}

// A seenRule is a rule of anybody's, in no rule set's terms.
type seenRule struct {
	place
	position int
	jumps    []string // to chains of the same table
	about    bool     // it names a metadata address as destination
	diverts  bool     // it can keep a packet from our redirect
	text     string
}

// survey looks at every rule that the kernel holds for one that names a metadata address: those of nftables and of
// iptables-nft, which are together, and those of iptables-legacy. It sees addresses that a rule compares with, alone or
// by prefix, and those in sets of nftables; not those in sets of ipset.
func (s standpoint) survey(p plan) (foreign []Rule, warnings []string, err error) {
	var (
		rules     []seenRule
		entrances []entrance
	)
	if err := steadily(func() (err error) {
		rules, entrances, warnings, err = s.surveyNft(p)
		return err
	}); err != nil {
		if s.kind != kindLegacy {
			return nil, nil, explain(err)
		} // else a kernel without nf_tables has no rules there either
		rules, entrances, warnings = nil, nil, nil
	}
	legacy, legacyEntrances, err := s.surveyLegacy(p)
	if err != nil {
		warnings = append(warnings, fmt.Sprintf("whether iptables-legacy has rules about the metadata address is not known: %v", err))
	}
	rules, entrances = append(rules, legacy...), append(entrances, legacyEntrances...)

	ahead := reached(rules, entrances)
	left := map[string]bool{} // tables
	for _, r := range rules {
		if strings.HasPrefix(r.chain, xtOurs) && r.table != "inet "+tableName {
			left[r.table] = left[r.table] || !s.holds(r.table)
			continue
		}
		if !r.about || r.ours() {
			continue
		}
		foreign = append(foreign, Rule{
			Table:    r.table,
			Chain:    r.chain,
			Position: r.position,
			Text:     r.text,
			Ahead:    r.position <= ahead[r.place] && r.diverts,
		})
	}
	for _, r := range rules { // in the order of the tables
		if left[r.table] {
			warnings = append(warnings, fmt.Sprintf("rules of pod2role by another back end are left in the table %s", r.table))
			left[r.table] = false
		}
	}
	return foreign, warnings, nil
}

// holds reports whether our back end puts rules into the table.
func (s standpoint) holds(table string) bool {
	return s.kind != "" && strings.HasPrefix(table, "legacy ") == (s.kind == kindLegacy)
}

// ours reports whether the rule is one of ours: in a chain of ours, or a jump to one.
func (r seenRule) ours() bool {
	return r.ownTable() ||
		slices.ContainsFunc(r.jumps, func(to string) bool { return strings.HasPrefix(to, xtOurs) })
}

// ownTable reports whether it is a chain of the table of our own.
func (p place) ownTable() bool {
	return p.table == "inet "+tableName && slices.Contains([]string{redirectChain, lockChain, requestsChain, answersChain}, p.chain)
}

// reached returns, for each chain, how many of its first rules packets may meet before our redirect.
func reached(rules []seenRule, entrances []entrance) map[place]int {
	jumps := map[place][]seenRule{}
	for _, r := range rules {
		if len(r.jumps) > 0 {
			jumps[r.place] = append(jumps[r.place], r)
		}
	}
	until := map[place]int{}
	for pending := slices.Clone(entrances); len(pending) > 0; {
		e := pending[0]
		pending = pending[1:]
		if e.until <= until[e.place] {
			continue
		}
		until[e.place] = e.until
		for _, r := range jumps[e.place] {
			for _, to := range r.jumps {
				if r.position <= e.until {
					pending = append(pending, entrance{place{r.table, to}, math.MaxInt})
				}
			}
		}
	}
	return until
}

// beforeOurs returns how many rules of the chain are before the first jump to our redirect.
func beforeOurs(rules []seenRule, chain place) int {
	n := math.MaxInt
	for _, r := range rules {
		if r.place == chain && slices.Contains(r.jumps, xtRedirectChain) {
			n = min(n, r.position-1)
		}
	}
	return n
}

// surveyLegacy looks at iptables-legacy. Its raw and mangle come before all NAT. Its nat and that of iptables-nft have the
// same priority, and which was there first is not to be seen; so to each the other counts as before it.
func (s standpoint) surveyLegacy(p plan) (rules []seenRule, entrances []entrance, err error) {
	for _, ipv6 := range []bool{false, true} {
		tables, err := legacyTables(ipv6)
		if err != nil {
			return nil, nil, err
		}
		for _, t := range tables {
			label := map[bool]string{false: "legacy ip ", true: "legacy ip6 "}[ipv6] + t.name
			for _, r := range t.rules {
				rule := seenRule{place: place{label, r.chain}, position: r.position, diverts: !passes(r.target), text: r.text}
				if r.jump != "" {
					rule.jumps, rule.text = []string{r.jump}, strings.Replace(r.text, "[jump]", "-j "+r.jump, 1)
				}
				for _, a := range p.lock {
					rule.about = rule.about || a.Is6() == ipv6 && r.names(a)
				}
				rules = append(rules, rule)
			}
			e := entrance{place{label, "PREROUTING"}, math.MaxInt}
			switch {
			case t.name == "raw", t.name == "mangle", t.name == "nat" && s.kind == kindNft:
			case t.name == "nat" && s.kind == kindLegacy:
				e.until = beforeOurs(rules, e.place)
			default:
				continue
			}
			entrances = append(entrances, e)
		}
	}
	return rules, entrances, nil
}

// passes reports whether a packet goes on to other tables after a target of this name.
func passes(target string) bool {
	return slices.Contains([]string{"ACCEPT", "RETURN", "LOG", "NFLOG", "MARK", "CONNMARK"}, target)
}
