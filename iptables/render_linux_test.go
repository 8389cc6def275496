package iptables

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/nftables/expr"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

func TestStringIsTheRulesAsAnOperatorKnowsThem(t *testing.T) {
	r, err := New(Config{
		NodeAddrs: []netip.Addr{netip.MustParseAddr("10.0.0.10"), netip.MustParseAddr("2001:db8::10")},
		Port:      8181,
		Interface: "eni+,!eni9",
	})
	if err != nil {
		t.Fatal(err)
	}
	want := `table inet pod2role {
	chain proxy {
		type nat hook prerouting priority dstnat - 10; policy accept;
		iifname "eni*" iifname != "eni9" ip daddr 169.254.169.254 tcp dport 80 counter dnat ip to 10.0.0.10:8181 comment "pod2role: what pods ask the metadata service goes to the proxy"
		iifname "eni*" iifname != "eni9" ip6 daddr fd00:ec2::254 tcp dport 80 counter dnat ip6 to [2001:db8::10]:8181 comment "pod2role: what pods ask the metadata service goes to the proxy"
	}

	chain lock {
		type filter hook prerouting priority dstnat + 10; policy accept;
		iifname "eni*" iifname != "eni9" ip daddr 169.254.169.254 meta l4proto tcp counter reject with tcp reset comment "pod2role: nothing else that a pod sends reaches the metadata service"
		iifname "eni*" iifname != "eni9" ip daddr 169.254.169.254 counter reject with icmpx admin-prohibited comment "pod2role: nothing else that a pod sends reaches the metadata service"
		iifname "eni*" iifname != "eni9" ip6 daddr fd00:ec2::254 meta l4proto tcp counter reject with tcp reset comment "pod2role: nothing else that a pod sends reaches the metadata service"
		iifname "eni*" iifname != "eni9" ip6 daddr fd00:ec2::254 counter reject with icmpx admin-prohibited comment "pod2role: nothing else that a pod sends reaches the metadata service"
	}
}
`
	if d := cmp.Diff(want, r.String()); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
}

func FuzzRule(f *testing.F) {
	f.Add([]byte{})
	p, err := newPlan(Config{Metadata: DefaultMetadata(), NodeAddrs: []netip.Addr{netip.MustParseAddr("10.0.0.10")}, Port: 8181})
	if err != nil {
		f.Fatal(err)
	}
	for _, c := range chainsOf(p) {
		for _, r := range c.rules {
			f.Add(ruleMessage(f, r))
		}
	}
	f.Fuzz(func(_ *testing.T, message []byte) {
		r, err := decodeRule(message)
		if err != nil {
			return
		}
		_ = r.text()
		for _, a := range DefaultMetadata() {
			_ = names(r, a.Addr(), func(heldRule, string, netip.Addr) bool { return true })
		}
	})
}

// ruleMessage is a rule as the kernel sends it.
func ruleMessage(f *testing.F, r wantedRule) []byte {
	f.Helper()
	var list []netlink.Attribute
	for _, e := range r.exprs {
		data, err := expr.Marshal(unix.NFPROTO_INET, e)
		if err != nil {
			f.Fatal(err)
		}
		list = append(list, netlink.Attribute{Type: unix.NLA_F_NESTED | unix.NFTA_LIST_ELEM, Data: data})
	}
	exprs, err := netlink.MarshalAttributes(list)
	if err != nil {
		f.Fatal(err)
	}
	attrs, err := netlink.MarshalAttributes([]netlink.Attribute{
		{Type: unix.NLA_F_NESTED | unix.NFTA_RULE_EXPRESSIONS, Data: exprs},
		{Type: unix.NFTA_RULE_USERDATA, Data: commentData(r.comment)},
	})
	if err != nil {
		f.Fatal(err)
	}
	return append([]byte{unix.NFPROTO_INET, 0, 0, 0}, attrs...)
}
