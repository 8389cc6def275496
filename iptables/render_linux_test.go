package iptables

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
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
	f.Add([]byte{2, 0, 0, 0, 8, 0, 1, 0, 'n', 'a', 't', 0})
	f.Fuzz(func(_ *testing.T, message []byte) {
		r, err := decodeRule(message)
		if err != nil {
			return
		}
		_ = r.text()
		_, _ = names(r, netip.MustParseAddr("169.254.169.254")), names(r, netip.MustParseAddr("fd00:ec2::254"))
	})
}
