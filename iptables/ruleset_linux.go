package iptables

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

const (
	tableName     = "pod2role"
	redirectChain = "proxy"
	lockChain     = "lock"
	requestsChain = "requests"
	answersChain  = "answers"

	redirectComment = "pod2role: what pods ask the metadata service goes to the proxy"
	branchComment   = "pod2role: to the proxy and back past the tables of security groups for pods"
	lockComment     = "pod2role: nothing else that a pod sends reaches the metadata service"
)

// The kernel does all DNAT at priority dstnat (-100), and asks the nat chains in the order of theirs. So the redirect,
// being lower, is asked before kube2iam, Kiam and kube-proxy, which sit at dstnat; and the lock, being higher, sees every
// packet as NAT has left it. https://wiki.nftables.org/wiki-nftables/index.php/Netfilter_hooks
const (
	dstnat           nftables.ChainPriority = -100
	redirectPriority                        = dstnat - 10
	lockPriority                            = dstnat + 10
	manglePriority   nftables.ChainPriority = -150
)

func ourTable() *nftables.Table {
	return &nftables.Table{Name: tableName, Family: nftables.TableFamilyINet}
}

// A wantedChain and its wantedRules are a plan in the terms of nftables.
type wantedChain struct {
	name     string
	kind     nftables.ChainType
	hook     *nftables.ChainHook
	priority nftables.ChainPriority
	rules    []wantedRule
}

type wantedRule struct {
	exprs   []expr.Any
	comment string
}

func (c wantedChain) header() string {
	policy := nftables.ChainPolicyAccept
	return chainHeader(&nftables.Chain{Type: c.kind, Hooknum: c.hook, Priority: &c.priority, Policy: &policy})
}

func (c wantedChain) lines() []string {
	var out []string
	for _, r := range c.rules {
		rule := heldRule{family: nftables.TableFamilyINet, comment: r.comment}
		for _, e := range r.exprs {
			rule.exprs = append(rule.exprs, e)
		}
		out = append(out, rule.text())
	}
	return out
}

// chainsOf translates a plan. The lock does not look at conntrack's state: a packet that no NAT rule has seen is caught
// by its destination alone.
func chainsOf(p plan) []wantedChain {
	nat := wantedChain{name: redirectChain, kind: nftables.ChainTypeNAT, hook: nftables.ChainHookPrerouting, priority: redirectPriority}
	lock := wantedChain{name: lockChain, kind: nftables.ChainTypeFilter, hook: nftables.ChainHookPrerouting, priority: lockPriority}
	for _, o := range p.from {
		for _, r := range p.redirect {
			nat.rules = append(nat.rules, wantedRule{
				exprs:   concat(arrives(o), to(r.metadata.Addr()), tcpTo(r.metadata.Port()), counter(), dnat(r.to)),
				comment: redirectComment,
			})
		}
	}
	for _, o := range p.from {
		for _, a := range p.lock {
			lock.rules = append(lock.rules,
				wantedRule{exprs: concat(arrives(o), to(a), tcp(), counter(), reject(unix.NFT_REJECT_TCP_RST, 0)), comment: lockComment},
				wantedRule{exprs: concat(arrives(o), to(a), counter(), reject(unix.NFT_REJECT_ICMPX_UNREACH, unix.NFT_REJECT_ICMPX_ADMIN_PROHIBITED)), comment: lockComment},
			)
		}
	}
	if len(p.branches) == 0 {
		return []wantedChain{nat, lock}
	}
	// Routing by mark: requests before they are translated, and answers, the lock's among them, before they are.
	requests := wantedChain{name: requestsChain, kind: nftables.ChainTypeFilter, hook: nftables.ChainHookPrerouting, priority: manglePriority}
	answers := wantedChain{name: answersChain, kind: nftables.ChainTypeRoute, hook: nftables.ChainHookOutput, priority: manglePriority}
	branches := origin{{name: branchInterfaces, prefix: true}}
	for _, r := range p.redirect {
		requests.rules = append(requests.rules, wantedRule{
			exprs: concat(arrives(branches), to(r.metadata.Addr()), tcpTo(r.metadata.Port()), counter(), mark()), comment: branchComment,
		})
		answers.rules = append(answers.rules, wantedRule{
			exprs: concat(from(r.to.Addr()), tcpFrom(r.to.Port()), counter(), mark()), comment: branchComment,
		})
	}
	for _, a := range p.lock {
		answers.rules = append(answers.rules, wantedRule{exprs: concat(from(a), counter(), mark()), comment: branchComment})
	}
	return []wantedChain{nat, lock, requests, answers}
}

func concat(parts ...[]expr.Any) []expr.Any {
	var out []expr.Any
	for _, p := range parts {
		out = append(out, p...)
	}
	return out
}

// arrives compares the name of the ingress interface: a prefix by its bytes, a whole name with the padding.
func arrives(o origin) []expr.Any {
	var out []expr.Any
	for _, m := range o {
		data := []byte(m.name)
		if !m.prefix {
			data = append(data, make([]byte, unix.IFNAMSIZ-len(data))...)
		}
		op := expr.CmpOpEq
		if m.not {
			op = expr.CmpOpNeq
		}
		out = append(out, &expr.Meta{Key: expr.MetaKeyIIFNAME, Register: 1}, &expr.Cmp{Op: op, Register: 1, Data: data})
	}
	return out
}

func to(a netip.Addr) []expr.Any {
	if a.Is6() {
		return compareAddr(unix.NFPROTO_IPV6, daddrOffset6, a)
	}
	return compareAddr(unix.NFPROTO_IPV4, daddrOffset4, a)
}

func from(a netip.Addr) []expr.Any {
	if a.Is6() {
		return compareAddr(unix.NFPROTO_IPV6, saddrOffset6, a)
	}
	return compareAddr(unix.NFPROTO_IPV4, saddrOffset4, a)
}

func compareAddr(family byte, offset uint32, a netip.Addr) []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{family}},
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: uint32(a.BitLen() / 8)},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: a.AsSlice()},
	}
}

func tcp() []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{unix.IPPROTO_TCP}},
	}
}

func tcpTo(port uint16) []expr.Any { return comparePort(dportOffset, port) }

func tcpFrom(port uint16) []expr.Any { return comparePort(sportOffset, port) }

func comparePort(offset uint32, port uint16) []expr.Any {
	return append(tcp(),
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: offset, Len: 2},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binaryutil.BigEndian.PutUint16(port)},
	)
}

// mark sets our bit of the packet's mark and leaves the others.
func mark() []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyMARK, Register: 1},
		&expr.Bitwise{
			SourceRegister: 1, DestRegister: 1, Len: 4,
			Mask: binaryutil.NativeEndian.PutUint32(^uint32(branchMark)), Xor: binaryutil.NativeEndian.PutUint32(branchMark),
		},
		&expr.Meta{Key: expr.MetaKeyMARK, SourceRegister: true, Register: 1},
	}
}

func counter() []expr.Any { return []expr.Any{&expr.Counter{}} }

func dnat(to netip.AddrPort) []expr.Any {
	family := uint32(unix.NFPROTO_IPV4)
	if to.Addr().Is6() {
		family = unix.NFPROTO_IPV6
	}
	return []expr.Any{
		&expr.Immediate{Register: 1, Data: to.Addr().AsSlice()},
		&expr.Immediate{Register: 2, Data: binaryutil.BigEndian.PutUint16(to.Port())},
		&expr.NAT{Type: expr.NATTypeDestNAT, Family: family, RegAddrMin: 1, RegProtoMin: 2},
	}
}

func reject(kind uint32, code uint8) []expr.Any {
	return []expr.Any{&expr.Reject{Type: kind, Code: code}}
}

func (nft) render(p plan) string {
	var b strings.Builder
	fmt.Fprintf(&b, "table inet %s {\n", tableName)
	for i, c := range chainsOf(p) {
		if i > 0 {
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, "\tchain %s {\n\t\t%s\n", c.name, c.header())
		for _, line := range c.lines() {
			fmt.Fprintf(&b, "\t\t%s\n", line)
		}
		b.WriteString("\t}\n")
	}
	b.WriteString("}\n")
	return b.String()
}
