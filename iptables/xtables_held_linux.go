package iptables

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// An xtHeld is what the kernel holds of ours in one table.
type xtHeld struct {
	missing bool // the kernel has no such table
	chain   bool // our chain exists
	rules   []xtRule
	base    map[string][]xtRule // :: built-in chain -> its rules
}

// An xtRule is a rule as iptables -S prints it, without its chain and counters.
type xtRule struct {
	text    string
	packets uint64
}

var xtCounters = regexp.MustCompile(` -c (\d+) \d+( |$)`)

// parseXtRule reads a line of iptables -S -v. What is no rule is refused.
func parseXtRule(line, chain string) (xtRule, bool) {
	text, ok := strings.CutPrefix(line, "-A "+chain+" ")
	if !ok {
		return xtRule{}, false
	}
	r := xtRule{text: text}
	if at := xtCounters.FindStringSubmatchIndex(" " + text); at != nil {
		padded := " " + text
		r.packets, _ = strconv.ParseUint(padded[at[2]:at[3]], 10, 64)
		r.text = strings.TrimSpace(padded[:at[0]] + " " + padded[at[1]:])
	}
	return r, true
}

// jumpsTo reports whether the rule leads to the chain, on whatever condition.
func (r xtRule) jumpsTo(chain string) bool {
	return strings.HasSuffix(" "+r.text, " -j "+chain) || strings.HasSuffix(" "+r.text, " -g "+chain)
}

// ours returns the positions, from 1, of the jumps to our chain.
func (h xtHeld) ours(base, chain string) []int {
	var out []int
	for i, r := range h.base[base] {
		if r.jumpsTo(chain) {
			out = append(out, i+1)
		}
	}
	return out
}

// jumpsRight reports whether the built-in chain begins with our jumps and has no more of them.
func (t xtTable) jumpsRight(h xtHeld, base string) bool {
	rules := h.base[base]
	if len(rules) < len(t.jumps) || len(h.ours(base, t.chain)) != len(t.jumps) {
		return false
	}
	for i, want := range t.jumps {
		if rules[i].text != want {
			return false
		}
	}
	return true
}

func (t xtTable) rulesRight(h xtHeld) bool {
	return h.chain == (len(t.rules) > 0) &&
		slices.EqualFunc(h.rules, t.rules, func(r xtRule, want string) bool { return r.text == want })
}

// problems says in which the table is not as it should be.
func (t xtTable) problems(h xtHeld, tool string, problem func(string, ...any)) {
	where := fmt.Sprintf("%s of %s %s", t.chain, tool, t.name)
	switch {
	case len(t.rules) == 0 && h.chain:
		problem("the chain %s is of an older configuration", where)
	case len(t.rules) > 0 && !h.chain:
		problem("the chain %s is missing", where)
	default:
		var got []string
		for _, r := range h.rules {
			got = append(got, r.text)
		}
		compareRules(where, got, t.rules, problem)
	}
	for _, base := range t.from {
		if !t.jumpsRight(h, base) && (h.chain || len(t.rules) > 0) {
			problem("the chain %s of %s %s does not begin with the jump to %s, which is its rule %v of %d", base, tool, t.name, t.chain, h.ours(base, t.chain), len(h.base[base]))
		}
	}
}

// script is the input of iptables-restore --noflush that makes the table as it should be; "" if it is.
func (t xtTable) script(h xtHeld) string {
	var b strings.Builder
	for _, base := range t.from {
		if t.jumpsRight(h, base) {
			continue
		}
		for _, i := range h.ours(base, t.chain) {
			fmt.Fprintf(&b, "-D %s %s\n", base, h.base[base][i-1].text)
		}
	}
	switch {
	case t.rulesRight(h):
	case len(t.rules) == 0:
		fmt.Fprintf(&b, "-F %s\n-X %s\n", t.chain, t.chain)
	default:
		// Naming the chain makes it, or empties it.
		fmt.Fprintf(&b, ":%s - [0:0]\n", t.chain)
		for _, r := range t.rules {
			fmt.Fprintf(&b, "-A %s %s\n", t.chain, r)
		}
	}
	for _, base := range t.from {
		if t.jumpsRight(h, base) {
			continue
		}
		for i, jump := range t.jumps {
			fmt.Fprintf(&b, "-I %s %d %s\n", base, i+1, jump)
		}
	}
	if b.Len() == 0 {
		return ""
	}
	return "*" + t.name + "\n" + b.String() + "COMMIT\n"
}
