package iptables

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
)

// A plan is the desired state, in no back end's terms. It does not change after New.
type plan struct {
	from     []origin   // packets that arrive by any of these come from pods
	redirect []redirect // TCP for metadata goes to to
	lock     []netip.Addr
	branches []branch // where some pods' answers have to be routed; found on the node, not configured
}

type redirect struct{ metadata, to netip.AddrPort }

// A backend makes a kernel hold a plan. Each call opens what it needs on the calling goroutine's thread and blocks for
// milliseconds, or seconds where the kernel does not answer.
type backend interface {
	// name is the back end's, for people.
	name() string
	// apply makes the kernel hold exactly the plan, in one step: no packet sees half of it.
	apply(plan) error
	// remove takes out everything that apply put in. It is no error if there is nothing.
	remove() error
	// inspect reads what the kernel holds of ours.
	inspect(plan) (inspection, error)
	// survey reads what the kernel holds of others and what else an operator should know.
	survey(plan) (foreign []Rule, warnings []string, err error)
	// watch begins to listen for changes to what is ours.
	watch() (watcher, error)
	// render writes the plan in the syntax of the back end's own tool.
	render(plan) string
}

// A watcher tells that the kernel's rules may have changed. Changes closes when it cannot tell any more.
type watcher interface {
	changes() <-chan struct{}
	close() // returns when its goroutine has ended
}

// An inspection is what the kernel holds of ours.
type inspection struct {
	present    bool     // there is something of ours
	problems   []string // in which it differs from the plan, each a sentence; empty: complete
	redirected uint64   // connections, since the rules went in
	locked     uint64   // packets, since the rules went in
}

func newPlan(c Config) (plan, error) {
	var problems []error
	problem := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }

	from, err := parseInterface(c.Interface)
	if err != nil {
		problems = append(problems, err)
	}
	if c.Port == 0 {
		problem("the proxy's port is missing")
	}
	node := map[bool]netip.Addr{} // :: is it IPv4 -> the node's address
	for _, a := range c.NodeAddrs {
		a = a.Unmap()
		switch {
		case !a.IsValid() || a.IsUnspecified() || a.IsLoopback() || a.IsMulticast() || a.Zone() != "" || a.Is6() && a.IsLinkLocalUnicast():
			problem("pods cannot be sent to the node's address %q: give the address that other hosts reach it by", a)
		case node[a.Is4()].IsValid():
			problem("the node has two addresses of one family, %s and %s: give one", node[a.Is4()], a)
		default:
			node[a.Is4()] = a
		}
	}
	p := plan{from: from}
	for _, m := range c.Metadata {
		m = netip.AddrPortFrom(m.Addr().Unmap(), m.Port())
		a := m.Addr()
		switch {
		case !a.IsValid() || a.IsUnspecified() || a.IsLoopback() || a.IsMulticast() || a.Zone() != "" || m.Port() == 0:
			problem("%q is no metadata address that a pod can reach", m)
			continue
		case a == node[a.Is4()]:
			problem("%s is both the metadata address and the node's own", a)
			continue
		}
		if to := node[a.Is4()]; to.IsValid() && c.Port != 0 {
			p.redirect = append(p.redirect, redirect{metadata: m, to: netip.AddrPortFrom(to, c.Port)})
		}
		if !slices.Contains(p.lock, a) {
			p.lock = append(p.lock, a)
		}
	}
	if len(p.redirect) == 0 && len(problems) == 0 {
		problem("nothing to redirect: the node has no address of the family of any metadata address")
	}
	return p, errors.Join(problems...)
}

// unanswered returns the metadata addresses that are locked but not redirected.
func (p plan) unanswered() []netip.Addr {
	var out []netip.Addr
	for _, a := range p.lock {
		if !slices.ContainsFunc(p.redirect, func(r redirect) bool { return r.metadata.Addr() == a }) {
			out = append(out, a)
		}
	}
	return out
}
