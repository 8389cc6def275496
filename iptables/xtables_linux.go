package iptables

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"

	goiptables "github.com/coreos/go-iptables/iptables"
)

// The two rule sets that go by the name of iptables. They do not see each other.
const (
	kindNft    = "nft"    // held by nf_tables
	kindLegacy = "legacy" // held by ip_tables and ip6_tables
)

// xtLockWait is how many seconds iptables waits for the lock that all who change legacy tables take.
const xtLockWait = 5

// xtables is the back end that runs the iptables commands, for kernels on which nftables cannot hold our rules.
type xtables struct {
	mu    sync.Mutex
	kind  string                 // "" until it was looked up
	tools map[bool]*iptablesTool // :: is it IPv6
}

// An iptablesTool is the command of one kind and one address family.
type iptablesTool struct {
	*goiptables.IPTables
	command string
	kind    string
}

func (x *xtables) name() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.kind == "" {
		return "iptables"
	}
	return "iptables-" + x.kind
}

// tool finds the command. It looks up once which kind the host uses: moving from one to the other while running would
// leave rules behind.
func (x *xtables) tool(ipv6 bool) (*iptablesTool, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.kind == "" {
		kind, err := hostsKind()
		if err != nil {
			return nil, err
		}
		x.kind = kind
	}
	if t, ok := x.tools[ipv6]; ok {
		return t, nil
	}
	command, err := commandOf(x.kind, ipv6)
	if err != nil {
		return nil, err
	}
	family := goiptables.ProtocolIPv4
	if ipv6 {
		family = goiptables.ProtocolIPv6
	}
	ipt, err := goiptables.New(goiptables.IPFamily(family), goiptables.Path(command), goiptables.Timeout(xtLockWait))
	if err != nil {
		return nil, fmt.Errorf("asking %s for its version: %w", command, err)
	}
	if x.tools == nil {
		x.tools = map[bool]*iptablesTool{}
	}
	x.tools[ipv6] = &iptablesTool{IPTables: ipt, command: command, kind: x.kind}
	return x.tools[ipv6], nil
}

// each calls f for each address family that the node has.
func (x *xtables) each(p plan, f func(*iptablesTool, []xtTable) error) error {
	for _, ipv6 := range []bool{false, true} {
		if ipv6 && !hasIPv6() {
			continue // the kernel was told not to speak it, so pods do not either
		}
		t, err := x.tool(ipv6)
		if err != nil {
			return err
		}
		if err := f(t, xtTablesOf(p, ipv6)); err != nil {
			return err
		}
	}
	return nil
}

func hasIPv6() bool {
	_, err := os.Stat("/proc/sys/net/ipv6")
	return err == nil
}

// apply puts the plan in, and takes out the table that the other back end of ours may have left: it would be consulted
// before, and redirect to where that was told to.
func (x *xtables) apply(p plan) error {
	if err := x.put(p); err != nil {
		return err
	}
	if err := removeTable(); !errors.Is(err, ErrNotSupported) {
		return err
	}
	return nil
}

// put brings each table to the plan in one step: the lock's before the redirect's. What is right already is left alone
// with its counters.
func (x *xtables) put(p plan) error {
	return x.each(p, func(tool *iptablesTool, tables []xtTable) error {
		for _, t := range tables {
			held, err := tool.read(t)
			if err != nil {
				return err
			}
			if held.missing {
				if !t.optional && len(t.rules) > 0 {
					return fmt.Errorf("%s has no table %s: %w", tool.command, t.name, ErrNotSupported)
				}
				continue
			}
			if script := t.script(held); script != "" {
				if err := tool.restore(script); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

func (x *xtables) inspect(p plan) (inspection, error) {
	var found inspection
	err := x.each(p, func(tool *iptablesTool, tables []xtTable) error {
		for _, t := range tables {
			held, err := tool.read(t)
			if err != nil {
				return err
			}
			found.present = found.present || held.chain
			for _, r := range held.rules {
				switch {
				case strings.HasSuffix(r.text, " -j RETURN"), t.name == "mangle":
				case t.chain == xtRedirectChain:
					found.redirected += r.packets
				default:
					found.locked += r.packets
				}
			}
			if held.missing && t.optional {
				continue
			}
			t.problems(held, tool.command, func(format string, args ...any) {
				found.problems = append(found.problems, fmt.Sprintf(format, args...))
			})
		}
		return nil
	})
	return found, err
}

// read reads what one table holds of ours.
func (t *iptablesTool) read(want xtTable) (xtHeld, error) {
	held := xtHeld{base: map[string][]xtRule{}}
	var err error
	if held.rules, held.chain, err = t.list(want.name, want.chain); err != nil {
		if held.missing = errors.Is(err, errNoTable); held.missing {
			return held, nil
		}
		return held, err
	}
	for _, base := range want.from {
		if held.base[base], _, err = t.list(want.name, base); err != nil {
			return held, err
		}
	}
	return held, nil
}

var errNoTable = errors.New("there is no such table")

// list returns the rules of a chain, and whether it exists.
func (t *iptablesTool) list(table, chain string) ([]xtRule, bool, error) {
	lines, err := t.ListWithCounters(table, chain)
	var failed *goiptables.Error
	switch {
	case errors.As(err, &failed) && noTable(failed.Error()):
		return nil, false, errNoTable
	case errors.As(err, &failed) && noChain(failed.Error()):
		return nil, false, nil
	case err != nil:
		return nil, false, t.explain(fmt.Errorf("listing the chain %s of %s %s: %w", chain, t.command, table, err), err.Error())
	}
	var rules []xtRule
	for _, line := range lines {
		if r, ok := parseXtRule(line, chain); ok {
			rules = append(rules, r)
		}
	}
	return rules, true, nil
}

// What iptables says, in English wherever it runs: it is not translated.
func noTable(message string) bool {
	return strings.Contains(message, "Table does not exist") || strings.Contains(message, "table `") && strings.Contains(message, "does not exist")
}

func noChain(message string) bool {
	return strings.Contains(message, "No chain/target/match by that name") || strings.Contains(message, "is incompatible, use 'nft' tool")
}

// restore feeds a script to iptables-restore, which does all of it or nothing.
func (t *iptablesTool) restore(script string) error {
	command := t.command + "-restore"
	cmd := exec.Command(command, "--noflush", "--wait", strconv.Itoa(xtLockWait))
	cmd.Stdin = strings.NewReader(script)
	if out, err := cmd.CombinedOutput(); err != nil {
		said := string(bytes.TrimSpace(out))
		return t.explain(fmt.Errorf("running %s: %w: %s", command, err, said), said)
	}
	return nil
}

// explain says what a person can do about what the command said.
func (t *iptablesTool) explain(err error, said string) error {
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return fmt.Errorf("%w (%w)", ErrNoIptables, err)
	case strings.Contains(said, "Permission denied") || strings.Contains(said, "Operation not permitted"):
		if t.kind == kindLegacy {
			return fmt.Errorf("%s takes the capability NET_RAW besides NET_ADMIN: %w (%w)", t.command, ErrNotPermitted, err)
		}
		return fmt.Errorf("%w (%w)", ErrNotPermitted, err)
	}
	return err
}

func (x *xtables) survey(p plan) ([]Rule, []string, error) {
	tool, err := x.tool(false)
	if err != nil {
		return nil, nil, err
	}
	return standpoint{priority: dstnat, kind: tool.kind}.survey(p)
}
