package iptables

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	mdlayher "github.com/mdlayher/netlink"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// EKS' security groups for pods in strict mode give a pod a network interface of the VPC. The AWS VPC CNI sends all that
// such a pod says out through it, also what is for the node's own address: rules "iif vlan… lookup T" stand ahead of the
// table local, whose rule is moved from 0 to 20, and the route back to the pod is in T only. See
// setupIIFBasedContainerRouteRules of amazon-vpc-cni-k8s. So what is redirected is marked, and looked up in local before
// that; and the answers are looked up in each T, less its default route.
const (
	branchInterfaces = "vlan" // what the names of these interfaces begin with
	branchMark       = 0x40   // a bit that neither kube-proxy, the CNI plugins nor Istio use

	branchRequests = 5 // priorities of our rules; the CNI's are at 10
	branchAnswers  = 6
)

// kernelRouting is the node's policy routing.
type kernelRouting struct{}

func newRouting() routing { return kernelRouting{} }

// families are the address families that the node has, as netlink calls them.
func families() []int {
	if !hasIPv6() {
		return []int{netlink.FAMILY_V4}
	}
	return []int{netlink.FAMILY_V4, netlink.FAMILY_V6}
}

func ruleList(family int) ([]netlink.Rule, error) {
	rules, err := netlink.RuleList(family)
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return nil, fmt.Errorf("listing routing rules: %w", explain(err))
	}
	return rules, nil
}

// branches finds the routing tables of pods with an interface of their own in the VPC.
func (kernelRouting) branches() ([]branch, error) {
	var out []branch
	for _, family := range families() {
		rules, err := ruleList(family)
		if err != nil {
			return nil, err
		}
		for _, r := range rules {
			b := branch{ipv6: family == netlink.FAMILY_V6, table: r.Table}
			if strings.HasPrefix(r.IifName, branchInterfaces) && r.Table > 0 && !slices.Contains(out, b) {
				out = append(out, b)
			}
		}
	}
	slices.SortFunc(out, func(a, b branch) int { return cmp.Compare(a.table, b.table) })
	return out, nil
}

// rulesOf returns the routing rules that the plan asks for in one family.
func rulesOf(p plan, family int) []netlink.Rule {
	var out []netlink.Rule
	add := func(priority, table, suppress int) {
		mask := uint32(branchMark)
		r := netlink.NewRule()
		r.Family, r.Priority, r.Table, r.Mark, r.Mask, r.SuppressPrefixlen = family, priority, table, branchMark, &mask, suppress
		out = append(out, *r)
	}
	for _, b := range p.branches {
		if b.ipv6 != (family == netlink.FAMILY_V6) {
			continue
		}
		if len(out) == 0 {
			add(branchRequests, unix.RT_TABLE_LOCAL, -1)
		}
		add(branchAnswers, b.table, 0)
	}
	return out
}

// ourRule reports whether the rule was made by rulesOf.
func ourRule(r netlink.Rule) bool {
	return (r.Priority == branchRequests || r.Priority == branchAnswers) && r.Mark == branchMark && r.Mask != nil && *r.Mask == branchMark
}

func sameRule(a, b netlink.Rule) bool {
	return a.Priority == b.Priority && a.Table == b.Table && a.SuppressPrefixlen == b.SuppressPrefixlen && ourRule(a) == ourRule(b)
}

// differ calls what for each rule that is missing or too much.
func (kernelRouting) differ(p plan, missing, extra func(*netlink.Rule) error) error {
	for _, family := range families() {
		held, err := ruleList(family)
		if err != nil {
			return err
		}
		held = slices.DeleteFunc(held, func(r netlink.Rule) bool { return !ourRule(r) })
		want := rulesOf(p, family)
		for i := range want {
			if !slices.ContainsFunc(held, func(r netlink.Rule) bool { return sameRule(r, want[i]) }) {
				if err := missing(&want[i]); err != nil {
					return err
				}
			}
		}
		for i := range held {
			if !slices.ContainsFunc(want, func(r netlink.Rule) bool { return sameRule(r, held[i]) }) {
				held[i].Family = family
				if err := extra(&held[i]); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (k kernelRouting) inspect(p plan) ([]string, error) {
	var problems []string
	err := k.differ(p, func(r *netlink.Rule) error {
		problems = append(problems, fmt.Sprintf("the routing rule %d for table %d is missing", r.Priority, r.Table))
		return nil
	}, func(r *netlink.Rule) error {
		problems = append(problems, fmt.Sprintf("the routing rule %d for table %d is of a pod that is gone", r.Priority, r.Table))
		return nil
	})
	return problems, err
}

func (k kernelRouting) apply(p plan) error {
	return k.differ(p, func(r *netlink.Rule) error {
		if err := netlink.RuleAdd(r); err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("adding the routing rule %d for table %d: %w", r.Priority, r.Table, explain(err))
		}
		return nil
	}, func(r *netlink.Rule) error {
		if err := netlink.RuleDel(r); err != nil && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("deleting the routing rule %d for table %d: %w", r.Priority, r.Table, explain(err))
		}
		return nil
	})
}

// watch tells of every change to the routing rules: the CNI makes a few for each such pod, and nobody makes many.
func (kernelRouting) watch() (watcher, error) {
	return watchNetlink(unix.NETLINK_ROUTE, []uint32{unix.RTNLGRP_IPV4_RULE, unix.RTNLGRP_IPV6_RULE}, func(mdlayher.Message) bool { return true })
}
