package iptables

import (
	"fmt"
	"os/exec"
	"slices"
	"strings"

	"github.com/google/nftables"
)

// The chains that the kubelet keeps in mangle for others to find out which rule set it uses:
// https://kubernetes.io/blog/2022/09/07/iptables-chains-not-api/#use-case-iptables-mode
var kubeletChains = []string{"KUBE-IPTABLES-HINT", "KUBE-KUBELET-CANARY"}

// A ruleSet is what tells which kind of iptables the host uses.
type ruleSet struct {
	kubelet bool // it has the kubelet's chains
	rules   int  // how many rules it has that are not ours
}

// hostsKind finds out which kind of iptables the host uses: the kubelet's, else the one that holds more rules, else what
// the command iptables is, of those whose commands are there. It follows kubernetes-sigs/iptables-wrappers.
func hostsKind() (string, error) {
	var kinds []string
	for _, kind := range []string{kindNft, kindLegacy} {
		if _, err := commandOf(kind, false); err == nil {
			kinds = append(kinds, kind)
		}
	}
	switch len(kinds) {
	case 0:
		return "", fmt.Errorf("looking for iptables: %w", ErrNoIptables)
	case 1:
		return kinds[0], nil
	}
	inNft, err := nftRuleSet()
	if err != nil {
		return kindLegacy, nil //nolint:nilerr // the kernel has no nf_tables, or does not let us see it
	}
	return preferred(inNft, legacyRuleSet(), plainKind()), nil
}

func preferred(inNft, inLegacy ruleSet, plain string) string {
	switch {
	case inNft.kubelet:
		return kindNft
	case inLegacy.kubelet:
		return kindLegacy
	case inLegacy.rules > inNft.rules:
		return kindLegacy
	case inNft.rules > inLegacy.rules || plain == "":
		return kindNft
	}
	return plain
}

// commandOf returns the name of the command for a kind: one named after it, or the plain one if it is of that kind.
func commandOf(kind string, ipv6 bool) (string, error) {
	command := xtCommand(ipv6) + "-" + kind
	_, err := exec.LookPath(command)
	if err == nil {
		return command, nil
	}
	if plainKind() == kind {
		return xtCommand(ipv6), nil
	}
	return "", fmt.Errorf("%w (%w)", ErrNoIptables, err)
}

// plainKind returns of which kind the command iptables is; "" if there is none. Before 1.8 all were legacy, and did not
// say so.
func plainKind() string {
	out, err := exec.Command("iptables", "--version").Output()
	switch {
	case err != nil:
		return ""
	case strings.Contains(string(out), "nf_tables"):
		return kindNft
	}
	return kindLegacy
}

// xtTableNames are the tables that belong to iptables, whoever holds them.
var xtTableNames = []string{"raw", "mangle", "nat", "filter", "security"}

func nftRuleSet() (ruleSet, error) {
	var s ruleSet
	c, err := nftables.New(nftables.WithSockOptions(withDeadline))
	if err != nil {
		return s, err
	}
	chains, err := c.ListChains()
	if err != nil {
		return s, err
	}
	for _, chain := range chains {
		s.kubelet = s.kubelet || chain.Table.Name == "mangle" && slices.Contains(kubeletChains, chain.Name)
	}
	rules, err := dumpRules(nftables.TableFamilyUnspecified, "")
	if err != nil {
		return s, err
	}
	for _, r := range rules {
		if (r.family == nftables.TableFamilyIPv4 || r.family == nftables.TableFamilyIPv6) &&
			slices.Contains(xtTableNames, r.table) && !strings.HasPrefix(r.chain, xtOurs) {
			s.rules++
		}
	}
	return s, nil
}

// legacyRuleSet leaves out what cannot be read: where the kernel does not let us see it, we could not change it either.
func legacyRuleSet() ruleSet {
	var s ruleSet
	for _, ipv6 := range []bool{false, true} {
		tables, err := legacyTables(ipv6)
		if err != nil {
			continue
		}
		for _, t := range tables {
			for _, chain := range t.chains {
				s.kubelet = s.kubelet || t.name == "mangle" && slices.Contains(kubeletChains, chain)
			}
			for _, r := range t.rules {
				if !strings.HasPrefix(r.chain, xtOurs) {
					s.rules++
				}
			}
		}
	}
	return s
}
