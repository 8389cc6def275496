package iptables

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestInterfacesAreReadAsKube2iamAndKiamWriteThem(t *testing.T) {
	lo := ifaceMatch{name: "lo", not: true}
	tests := []struct {
		in   string
		want []origin
	}{
		{"", []origin{{lo}}},
		{"auto", []origin{{lo}}},
		{"eth0", []origin{{{name: "eth0"}}}},
		{"eni+", []origin{{{name: "eni", prefix: true}}}},
		{"!eth0", []origin{{lo, {name: "eth0", not: true}}}},
		{"! eth0", []origin{{lo, {name: "eth0", not: true}}}},
		{"!ens+", []origin{{lo, {name: "ens", not: true, prefix: true}}}},
		{"cali+, eni+", []origin{{{name: "cali", prefix: true}}, {{name: "eni", prefix: true}}}},
		{"cali+,!cali1,cni0", []origin{
			{{name: "cali", prefix: true}, {name: "cali1", not: true}},
			{{name: "cni0"}, {name: "cali1", not: true}},
		}},
		{"abcdefghijklmno", []origin{{{name: "abcdefghijklmno"}}}},
	}
	for _, tt := range tests {
		t.Run(tt.in, func(t *testing.T) {
			got, err := parseInterface(tt.in)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tt.want, got, cmp.AllowUnexported(ifaceMatch{})); d != "" {
				t.Errorf("(-want +got)\n%s", d)
			}
		})
	}
}

func TestInterfacesThatMeanNothingAreRefusedWithTheReason(t *testing.T) {
	tests := []struct{ in, want string }{
		{"+", "names no interface"},
		{"!", "names no interface"},
		{"eth0,", "names no interface"},
		{"auto,eth0", "auto stands alone"},
		{"lo", "includes lo"},
		{"l+", "includes lo"},
		{"abcdefghijklmnop", "longer than the 15 characters"},
		{"eth 0", "not for an interface's name"},
		{"eni*", "not for an interface's name"},
		{`e"h`, "not for an interface's name"},
		{"!!eth0", "not for an interface's name"},
		{"eth0;", "not for an interface's name"},
	}
	for _, tt := range tests {
		t.Run(tt.in, func(t *testing.T) {
			if got, err := parseInterface(tt.in); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, %v; want an error with %q", got, err, tt.want)
			}
		})
	}
}

func FuzzInterface(f *testing.F) {
	for _, s := range []string{"", "auto", "eni+", "!eth0", "a,b,!c+", "+", "!", ",", "l+"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		origins, err := parseInterface(s)
		if err != nil {
			return
		}
		if len(origins) == 0 {
			t.Fatalf("%q is no origin at all", s)
		}
		for _, o := range origins {
			host := true // would what arrives through lo match?
			for _, m := range o {
				if m.name == "" || len(m.name) > maxName {
					t.Errorf("%q became the name %q", s, m.name)
				}
				host = host && matchesName(m, "lo") != m.not
			}
			if host {
				t.Errorf("%q lets the host's own requests match", s)
			}
		}
	})
}

func TestNewNamesAllThatIsWrong(t *testing.T) {
	node := []netip.Addr{netip.MustParseAddr("10.0.0.10")}
	tests := []struct {
		name string
		c    Config
		want []string
	}{
		{"everything", Config{Interface: "lo"}, []string{"includes lo", "the proxy's port is missing"}},
		{"no address", Config{Port: 8181}, []string{"nothing to redirect"}},
		{"loopback", Config{Port: 8181, NodeAddrs: []netip.Addr{netip.MustParseAddr("127.0.0.1")}}, []string{`"127.0.0.1"`}},
		{"link-local IPv6", Config{Port: 8181, NodeAddrs: []netip.Addr{netip.MustParseAddr("fe80::1%eth0")}}, []string{`"fe80::1%eth0"`}},
		{"no address at all", Config{Port: 8181, NodeAddrs: []netip.Addr{{}}}, []string{"give the address that other hosts reach it by"}},
		{
			"two of a family",
			Config{Port: 8181, NodeAddrs: []netip.Addr{node[0], netip.MustParseAddr("::ffff:10.0.0.11")}},
			[]string{"two addresses of one family, 10.0.0.10 and 10.0.0.11"},
		},
		{
			"a metadata address on loopback",
			Config{Port: 8181, NodeAddrs: node, Metadata: []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:80")}},
			[]string{`"127.0.0.1:80" is no metadata address`},
		},
		{
			"the node as metadata service",
			Config{Port: 8181, NodeAddrs: node, Metadata: []netip.AddrPort{netip.MustParseAddrPort("10.0.0.10:80")}},
			[]string{"both the metadata address and the node's own"},
		},
		{"another back end", Config{Port: 8181, NodeAddrs: node, Backend: "ipfw"}, []string{`no back end "ipfw"`}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := New(tt.c)
			for _, want := range tt.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("got %v, want an error with %q", err, want)
				}
			}
		})
	}
}

func TestEveryMetadataAddressIsLockedAndThoseOfTheNodesFamiliesRedirected(t *testing.T) {
	got, err := newPlan(Config{
		Metadata:  append(DefaultMetadata(), netip.MustParseAddrPort("[::ffff:169.254.169.254]:8080")),
		NodeAddrs: []netip.Addr{netip.MustParseAddr("::ffff:10.0.0.10")},
		Port:      8181,
	})
	if err != nil {
		t.Fatal(err)
	}
	to := netip.MustParseAddrPort("10.0.0.10:8181")
	want := plan{
		from: []origin{{notHost()}},
		redirect: []redirect{
			{netip.MustParseAddrPort("169.254.169.254:80"), to},
			{netip.MustParseAddrPort("169.254.169.254:8080"), to},
		},
		lock: []netip.Addr{netip.MustParseAddr("169.254.169.254"), netip.MustParseAddr("fd00:ec2::254")},
	}
	comparers := cmp.Options{
		cmp.AllowUnexported(plan{}, redirect{}, ifaceMatch{}, branch{}),
		cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
		cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b }),
	}
	if d := cmp.Diff(want, got, comparers); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
}
