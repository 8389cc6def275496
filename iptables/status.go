package iptables

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
)

// A Status is what the kernel holds, read at one moment.
type Status struct {
	Backend  string   `json:"backend"`
	Complete bool     `json:"complete"`           // all that is ours is there, exactly as it should be
	Problems []string `json:"problems,omitempty"` // in which it is not, each a sentence
	// First: nobody else's rule about a metadata address is consulted before ours. It says nothing of Complete.
	First    bool     `json:"first"`
	Foreign  []Rule   `json:"foreign,omitempty"`  // other people's rules that name a metadata address
	Warnings []string `json:"warnings,omitempty"` // what an operator should know, each a sentence

	Redirected uint64 `json:"redirected"` // connections sent to the proxy since the rules went in
	Locked     uint64 `json:"locked"`     // packets rejected since the rules went in
}

// A Rule is somebody else's rule that names a metadata address.
type Rule struct {
	Table    string `json:"table"` // with its family: "ip nat"; of iptables-legacy: "legacy ip nat"
	Chain    string `json:"chain"`
	Position int    `json:"position"` // in the chain, from 1
	Text     string `json:"text"`     // about as nft would print it; in [brackets] what only its own tool can read
	Ahead    bool   `json:"ahead"`    // it is consulted before ours and can take the packet away
}

func (r Rule) String() string {
	return fmt.Sprintf("%s %s %d: %s", r.Table, r.Chain, r.Position, r.Text)
}

// Check reads the rules back from the kernel. The error is about reading; what is read and is not right is in the Status.
func (r *Redirect) Check(ctx context.Context) (Status, error) {
	s := Status{Backend: r.backend.name()}
	if err := ctx.Err(); err != nil {
		return s, fmt.Errorf("checking the redirect rules: %w", err)
	}
	found, err := r.inspect()
	if err != nil {
		return s, fmt.Errorf("reading the redirect rules: %w", err)
	}
	s.Backend = r.backend.name() // known by now, if it had to be looked up
	s.Problems, s.Redirected, s.Locked = found.problems, found.redirected, found.locked
	s.Complete = len(found.problems) == 0
	s.Foreign, s.Warnings, err = r.backend.survey(r.plan())
	if err != nil {
		return s, fmt.Errorf("reading other rules about the metadata address: %w", err)
	}
	s.First = !slices.ContainsFunc(s.Foreign, func(f Rule) bool { return f.Ahead })
	host, err := r.hostWarnings()
	if err != nil {
		return s, err
	}
	s.Warnings = append(s.Warnings, host...)
	return s, nil
}

// hostWarnings compares the plan with the interfaces and addresses that the node has now.
func (r *Redirect) hostWarnings() ([]string, error) {
	var out []string
	warn := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }

	for _, a := range r.plan().unanswered() {
		warn("pods that ask %s are rejected, not answered: the node has no address of that family", a)
	}
	interfaces, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("listing the node's interfaces: %w", err)
	}
	for _, o := range r.plan().from {
		m := o[0] // the one that names; the others exclude
		if !m.not && !slices.ContainsFunc(interfaces, func(i net.Interface) bool { return matchesName(m, i.Name) }) {
			warn("no interface %s exists on the node now, so nothing that arrives is redirected or locked because of it", m)
		}
	}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("listing the node's addresses: %w", err)
	}
	for _, x := range r.plan().redirect {
		if !slices.ContainsFunc(addrs, func(a net.Addr) bool {
			p, err := netip.ParsePrefix(a.String())
			return err == nil && p.Addr() == x.to.Addr()
		}) {
			warn("%s, to which requests for %s are sent, is no address of this node", x.to.Addr(), x.metadata.Addr())
		}
	}
	return out, nil
}
