package iptables

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// The chains of ours in the tables of iptables.
const (
	xtRedirectChain = "POD2ROLE-REDIRECT" // in nat
	xtLockChain     = "POD2ROLE-LOCK"     // in filter and security
	xtRequestsChain = "POD2ROLE-REQUESTS" // in mangle, as is the next
	xtAnswersChain  = "POD2ROLE-ANSWERS"
	xtOurs          = "POD2ROLE-" // what their names begin with

	jumpComment = "pod2role: what is sent to the metadata service"
)

// An xtTable is what a plan wants of one table of iptables, in one address family.
type xtTable struct {
	name     string
	chain    string   // ours
	rules    []string // of our chain, as iptables -S prints them behind the chain's name; none: the chain shall not be
	from     []string // the built-in chains that begin with the jumps to ours
	jumps    []string
	optional bool // a kernel may lack the table
}

// xtTablesOf translates a plan. An empty plan asks for nothing, which is how ours are removed.
//
// The redirect is in nat PREROUTING, in front of the others. Nothing after NAT in PREROUTING can hold the lock as it does
// in nftables: raw and mangle are consulted before NAT, where what will be redirected cannot be told from what will not. So
// the lock comes after routing: a packet that is still for a metadata address there was not redirected, whether because of
// a notrack rule, a flushed chain or another rule in front. In filter it is answered with a reset, which only that table
// can do. Others push themselves in front there as well, Calico every few minutes, and accept; so security, which is
// consulted after filter and which hardly anybody uses, drops what filter let through.
func xtTablesOf(p plan, ipv6 bool) []xtTable {
	excluded, named := arrivals(p.from)
	var returns []string
	for _, m := range excluded {
		returns = append(returns, "-i "+xtName(m)+" -j RETURN")
	}
	filter := xtTable{name: "filter", chain: xtLockChain, from: []string{"FORWARD", "INPUT"}}
	security := xtTable{name: "security", chain: xtLockChain, from: filter.from, optional: true}
	nat := xtTable{name: "nat", chain: xtRedirectChain, from: []string{"PREROUTING"}}
	requests := xtTable{name: "mangle", chain: xtRequestsChain, from: nat.from}
	answers := xtTable{name: "mangle", chain: xtAnswersChain, from: []string{"OUTPUT"}}
	const mark = " -j MARK --set-xmark 0x40/0x40"

	prohibited := "icmp-admin-prohibited"
	if ipv6 {
		prohibited = "icmp6-adm-prohibited"
	}
	for _, a := range p.lock {
		if a.Is6() != ipv6 {
			continue
		}
		for _, t := range []*xtTable{&filter, &security} {
			t.jumps = append(t.jumps, xtJump(a, t.chain))
		}
		for _, from := range named {
			filter.rules = append(filter.rules,
				"-d "+host(a)+from+" -p tcp"+xtComment(lockComment)+" -j REJECT --reject-with tcp-reset",
				"-d "+host(a)+from+xtComment(lockComment)+" -j REJECT --reject-with "+prohibited)
			security.rules = append(security.rules, "-d "+host(a)+from+xtComment(lockComment)+" -j DROP")
		}
	}
	for _, r := range p.redirect {
		if r.metadata.Addr().Is6() != ipv6 {
			continue
		}
		if jump := xtJump(r.metadata.Addr(), nat.chain); !slices.Contains(nat.jumps, jump) {
			nat.jumps = append(nat.jumps, jump)
		}
		if len(p.branches) > 0 {
			if jump := xtJump(r.metadata.Addr(), requests.chain); !slices.Contains(requests.jumps, jump) {
				requests.jumps = append(requests.jumps, jump)
			}
			requests.rules = append(requests.rules, fmt.Sprintf("-d %s -i %s+ -p tcp -m tcp --dport %d%s%s",
				host(r.metadata.Addr()), branchInterfaces, r.metadata.Port(), xtComment(branchComment), mark))
			if len(answers.jumps) == 0 {
				answers.jumps = append(answers.jumps, xtComment(jumpComment)[1:]+" -j "+answers.chain)
			}
			answers.rules = append(answers.rules, fmt.Sprintf("-s %s -p tcp -m tcp --sport %d%s%s", host(r.to.Addr()), r.to.Port(), xtComment(branchComment), mark),
				"-s "+host(r.metadata.Addr())+xtComment(branchComment)+mark)
		}
		for _, from := range named {
			nat.rules = append(nat.rules, fmt.Sprintf("-d %s%s -p tcp -m tcp --dport %d%s -j DNAT --to-destination %s",
				host(r.metadata.Addr()), from, r.metadata.Port(), xtComment(redirectComment), r.to))
		}
	}
	tables := []xtTable{filter, security, requests, answers, nat} // the lock before the redirect: in between, closed
	for i := range tables {
		if t := &tables[i]; len(t.rules) > 0 && t.name != "mangle" {
			t.rules = append(slices.Clone(returns), t.rules...)
		}
	}
	return tables
}

// arrivals splits what each origin excludes, which is the same for all of them, from what they name. A rule of iptables
// takes one interface only, so what is excluded leaves the chain in front.
func arrivals(from []origin) (excluded []ifaceMatch, named []string) {
	for _, o := range from {
		name := ""
		for _, m := range o {
			switch {
			case !m.not:
				name = " -i " + xtName(m)
			case !slices.Contains(excluded, m):
				excluded = append(excluded, m)
			}
		}
		named = append(named, name)
	}
	return excluded, named
}

func xtName(m ifaceMatch) string {
	if m.prefix {
		return m.name + "+"
	}
	return m.name
}

func host(a netip.Addr) string { return netip.PrefixFrom(a, a.BitLen()).String() }

func xtComment(c string) string { return ` -m comment --comment "` + c + `"` }

func xtJump(a netip.Addr, chain string) string {
	return "-d " + host(a) + xtComment(jumpComment) + " -j " + chain
}

// render writes the plan as two inputs of iptables-restore, one for each address family.
func (*xtables) render(p plan) string {
	var b strings.Builder
	for _, ipv6 := range []bool{false, true} {
		fmt.Fprintf(&b, "# %s-restore --noflush\n", xtCommand(ipv6))
		for _, t := range xtTablesOf(p, ipv6) {
			b.WriteString(t.script(xtHeld{}))
		}
	}
	return b.String()
}

func xtCommand(ipv6 bool) string {
	if ipv6 {
		return "ip6tables"
	}
	return "iptables"
}
