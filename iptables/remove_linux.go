package iptables

import (
	"errors"
	"strings"

	"github.com/google/nftables"
)

// removeAll takes out what any back end of ours has put in: a node may have had another one before. The table of our own
// goes last, so that the redirect of the others does not become the one that counts.
func removeAll() error {
	inNft, err := ourChainsInNft()
	if err != nil && !errors.Is(err, ErrNotSupported) {
		return err
	}
	var errs []error
	if inNft {
		errs = append(errs, (&xtables{kind: kindNft}).put(plan{}))
	}
	if inLegacy, err := ourChainsInLegacy(); err != nil {
		errs = append(errs, err)
	} else if inLegacy {
		errs = append(errs, (&xtables{kind: kindLegacy}).put(plan{}))
	}
	if err := removeTable(); !errors.Is(err, ErrNotSupported) {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func (nft) remove() error      { return removeAll() }
func (*xtables) remove() error { return removeAll() }
func (*auto) remove() error    { return removeAll() }

// removeTable takes out the table of our own.
func removeTable() error {
	if _, err := generation(); err != nil {
		return explain(err)
	}
	c, err := nftables.New(nftables.WithSockOptions(withDeadline))
	if err != nil {
		return explain(err)
	}
	t := ourTable()
	c.AddTable(t)
	c.DelTable(t)
	return explain(c.Flush())
}

// ourChainsInNft reports whether iptables-nft has chains of ours.
func ourChainsInNft() (bool, error) {
	if _, err := generation(); err != nil {
		return false, explain(err)
	}
	c, err := nftables.New(nftables.WithSockOptions(withDeadline))
	if err != nil {
		return false, explain(err)
	}
	chains, err := c.ListChains()
	if err != nil {
		return false, explain(err)
	}
	for _, chain := range chains {
		if strings.HasPrefix(chain.Name, xtOurs) {
			return true, nil
		}
	}
	return false, nil
}

// ourChainsInLegacy reports whether iptables-legacy has chains of ours. It makes no table to find out.
func ourChainsInLegacy() (bool, error) {
	for _, ipv6 := range []bool{false, true} {
		tables, err := legacyTables(ipv6)
		if err != nil {
			return false, err
		}
		for _, t := range tables {
			for _, chain := range t.chains {
				if strings.HasPrefix(chain, xtOurs) {
					return true, nil
				}
			}
		}
	}
	return false, nil
}
