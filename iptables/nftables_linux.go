package iptables

import (
	"errors"
	"fmt"
	"time"

	"github.com/google/nftables"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// nft is the back end that speaks nftables over netlink.
type nft struct{}

func (nft) name() string { return "nftables" }

// kernelTimeout bounds every exchange with the kernel, which answers in microseconds unless something is very wrong.
const kernelTimeout = 10 * time.Second

func withDeadline(c *netlink.Conn) error { return c.SetDeadline(time.Now().Add(kernelTimeout)) }

// apply replaces the table as a whole. The "add" in front makes the "delete" good where there is no table yet; the kernel
// switches from the old generation of rules to the new one at once.
func (nft) apply(p plan) error {
	c, err := nftables.New(nftables.WithSockOptions(withDeadline))
	if err != nil {
		return explain(err)
	}
	t := ourTable()
	c.AddTable(t)
	c.DelTable(t)
	c.AddTable(t)
	for _, want := range chainsOf(p) {
		priority, policy := want.priority, nftables.ChainPolicyAccept
		chain := c.AddChain(&nftables.Chain{
			Name: want.name, Table: t, Type: want.kind, Hooknum: want.hook, Priority: &priority, Policy: &policy,
		})
		for _, r := range want.rules {
			c.AddRule(&nftables.Rule{Table: t, Chain: chain, Exprs: r.exprs, UserData: commentData(r.comment)})
		}
	}
	return explain(c.Flush())
}

// inspect compares by text: what the kernel holds is rendered by the same function as what is wanted, and the rendering
// leaves nothing out but counters.
func (nft) inspect(p plan) (inspection, error) {
	var found inspection
	err := steadily(func() error {
		found = inspection{}
		return inspect(p, &found)
	})
	return found, explain(err)
}

func inspect(p plan, found *inspection) error {
	c, err := nftables.New(nftables.WithSockOptions(withDeadline))
	if err != nil {
		return err
	}
	problem := func(format string, args ...any) {
		found.problems = append(found.problems, fmt.Sprintf(format, args...))
	}

	t, err := c.ListTableOfFamily(tableName, nftables.TableFamilyINet)
	switch {
	case errors.Is(err, unix.ENOENT):
		problem("the table inet %s is missing", tableName)
		return nil
	case err != nil:
		return err
	}
	found.present = true
	if t.Flags != 0 {
		problem("the table inet %s is dormant, or has other flags that are not ours", tableName)
	}
	chains, err := c.ListChainsOfTableFamily(nftables.TableFamilyINet)
	if err != nil {
		return err
	}
	held := map[string]string{} // :: chain -> its header
	for _, chain := range chains {
		if chain.Table.Name == tableName {
			held[chain.Name] = chainHeader(chain)
		}
	}
	rules, err := dumpRules(nftables.TableFamilyINet, tableName)
	if err != nil {
		return err
	}
	lines := map[string][]string{} // :: chain -> its rules
	for _, r := range rules {
		lines[r.chain] = append(lines[r.chain], r.text())
		switch r.chain {
		case redirectChain:
			found.redirected += r.packets()
		case lockChain:
			found.locked += r.packets()
		}
	}
	for _, want := range chainsOf(p) {
		header, ok := held[want.name]
		delete(held, want.name)
		switch {
		case !ok:
			problem("the chain %s is missing", want.name)
			continue
		case header != want.header():
			problem("the chain %s is %q; it should be %q", want.name, header, want.header())
		}
		compareRules(want.name, lines[want.name], want.lines(), problem)
	}
	for name := range held {
		problem("the chain %s is not ours", name)
	}
	return nil
}

// compareRules says which rule of a chain is the first to differ.
func compareRules(chain string, got, want []string, problem func(string, ...any)) {
	for i := range max(len(got), len(want)) {
		switch {
		case i >= len(got):
			problem("rule %d of the chain %s is missing: %s", i+1, chain, want[i])
		case i >= len(want):
			problem("rule %d of the chain %s is not ours: %s", i+1, chain, got[i])
		case got[i] != want[i]:
			problem("rule %d of the chain %s is %s; it should be %s", i+1, chain, got[i], want[i])
		default:
			continue
		}
		return
	}
}

// explain says what a person can do about the kernel's error.
func explain(err error) error {
	switch {
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		return fmt.Errorf("%w (%w)", ErrNotPermitted, err)
	case errors.Is(err, unix.EPROTONOSUPPORT), // no nfnetlink
		errors.Is(err, unix.EINVAL),     // nfnetlink without nf_tables
		errors.Is(err, unix.EOPNOTSUPP), // the same, for a batch; or no reject in prerouting
		errors.Is(err, unix.ENOENT):     // no such chain type or expression
		return fmt.Errorf("%w (%w)", ErrNotSupported, err)
	}
	return err
}
