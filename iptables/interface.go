package iptables

import (
	"fmt"
	"strings"
)

// ifaceMatch is a condition on the interface through which a packet arrives. Names are compared, not indexes: an
// interface may appear later than the rule.
type ifaceMatch struct {
	name   string
	prefix bool // name is the beginning of the interface's name
	not    bool
}

// An origin is a conjunction: packets that meet all of its conditions come from a pod.
type origin []ifaceMatch

// notHost keeps out what the host sends to itself.
func notHost() ifaceMatch { return ifaceMatch{name: "lo", not: true} }

// maxName is the longest name that Linux gives to an interface (IFNAMSIZ less the terminator).
const maxName = 15

// parseInterface reads where pods arrive, in the grammar of kube2iam, Kiam and iptables -i: "auto" (all interfaces but
// lo), "eth0", "cali+" (every name that begins so), "!eth0" (any but this), or a comma-separated list. In a list the
// names are alternatives, and what is excluded is excluded from each.
func parseInterface(s string) ([]origin, error) {
	if s == "" || s == "auto" {
		return []origin{{notHost()}}, nil
	}
	var named, excluded []ifaceMatch
	for item := range strings.SplitSeq(s, ",") {
		m, err := parseIfaceMatch(strings.TrimSpace(item))
		switch {
		case err != nil:
			return nil, fmt.Errorf("reading the interface %q: %w", s, err)
		case m.not:
			excluded = append(excluded, m)
		default:
			named = append(named, m)
		}
	}
	if len(named) == 0 {
		return []origin{append(origin{notHost()}, excluded...)}, nil
	}
	var origins []origin
	for _, m := range named {
		origins = append(origins, append(origin{m}, excluded...))
	}
	return origins, nil
}

func parseIfaceMatch(item string) (ifaceMatch, error) {
	var m ifaceMatch
	name, not := strings.CutPrefix(item, "!")
	m.not = not
	m.name, m.prefix = strings.CutSuffix(strings.TrimSpace(name), "+")
	switch {
	case m.name == "":
		return m, fmt.Errorf("%q names no interface: write auto, a name such as eth0, a prefix such as cali+, or !eth0", item)
	case len(m.name) > maxName:
		return m, fmt.Errorf("%q is longer than the %d characters that an interface's name can have", m.name, maxName)
	case m.name == "auto":
		return m, fmt.Errorf("auto stands alone: it is every interface but lo already")
	case !m.not && matchesName(m, "lo"):
		return m, fmt.Errorf("%q includes lo, through which no pod arrives: the host's own requests are not redirected", item)
	}
	for _, r := range m.name {
		if r <= ' ' || r > '~' || strings.ContainsRune(`/:;!"*\`, r) {
			return m, fmt.Errorf("%q has the character %q, which is not for an interface's name", item, r)
		}
	}
	return m, nil
}

// matchesName reports whether m speaks of the name, whether it includes or excludes it.
func matchesName(m ifaceMatch, name string) bool {
	if m.prefix {
		return strings.HasPrefix(name, m.name)
	}
	return name == m.name
}

func (m ifaceMatch) String() string {
	s := m.name
	if m.not {
		s = "!" + s
	}
	if m.prefix {
		s += "+"
	}
	return s
}
