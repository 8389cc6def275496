package iptables_test

import (
	"strings"
	"testing"

	"pod2role/e2e/testnet"
	"pod2role/iptables"
)

func TestCheckSaysWhatIsNotAsItShouldBe(t *testing.T) {
	tests := []struct{ name, script, want string }{
		{"nothing there", "delete table inet pod2role", "the table inet pod2role is missing"},
		{"asleep", "add table inet pod2role { flags dormant; }", "is dormant"},
		{"no chain", "delete chain inet pod2role proxy", "the chain proxy is missing"},
		{"no lock", "delete chain inet pod2role lock", "the chain lock is missing"},
		{"empty", "flush chain inet pod2role lock", "rule 1 of the chain lock is missing"},
		{"one more at the end", "add rule inet pod2role lock accept", "rule 5 of the chain lock is not ours: accept"},
		{"one more in front", "insert rule inet pod2role proxy return", "rule 1 of the chain proxy is return; it should be"},
		{"one that only nft can read", `insert rule inet pod2role proxy socket mark 1 counter`, "rule 1 of the chain proxy is [socket]"},
		{"a chain too many", "add chain inet pod2role x", "the chain x is not ours"},
		{"another policy", "add chain inet pod2role lock { policy drop; }", `policy drop;"; it should be`},
		{
			"another priority", `delete chain inet pod2role lock; add chain inet pod2role lock { type filter hook prerouting priority -300; }`,
			`the chain lock is "type filter hook prerouting priority -300; policy accept;"`,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t, testnet.Bridge, config())
			r.apply(t)
			if s := r.check(t); !s.Complete || !s.First || len(s.Foreign)+len(s.Warnings) > 0 {
				t.Fatalf("got %+v, want complete, first and nothing else", s)
			}
			r.nft(t, tt.script)
			if s := r.check(t); s.Complete || !contains(s.Problems, tt.want) {
				t.Errorf("got complete %t with %q, want the problem %q", s.Complete, s.Problems, tt.want)
			}
			r.apply(t)
			if s := r.check(t); !s.Complete {
				t.Errorf("got %q after Apply, want a complete rule set", s.Problems)
			}
		})
	}
}

// The text is right if nft, reading it, makes the same rules as we do over netlink; and if nft prints it.
func TestStringIsWhatNftReadsAndPrints(t *testing.T) {
	for _, iface := range []string{"auto", "eni+", "!eth0,!docker0", "cali+,cni0,!cali7"} {
		t.Run(iface, func(t *testing.T) {
			c := config()
			c.Interface = iface
			r := newRig(t, testnet.Bridge, c)
			r.nft(t, r.redirect.String())
			if s := r.check(t); !s.Complete {
				t.Errorf("got %q of what nft made of\n%s", s.Problems, r.redirect)
			}
			if got := r.Node.Run(t, "nft", "--stateless", "list", "ruleset"); got != r.redirect.String() {
				t.Errorf("nft prints\n%s\nwant\n%s", got, r.redirect)
			}
		})
	}
}

func TestCheckFindsForeignRulesAndWhoIsAskedFirst(t *testing.T) {
	tests := []struct {
		name, script string
		want         []iptables.Rule
	}{
		{
			"NAT in front", `table ip foreign { chain pre { type nat hook prerouting priority -120; accept; ip daddr 169.254.169.254 tcp dport 80 dnat to 10.0.0.1:1; }; }`,
			[]iptables.Rule{{Table: "ip foreign", Chain: "pre", Position: 2, Text: "ip daddr 169.254.169.254 tcp dport 80 dnat ip to 10.0.0.1:1", Ahead: true}},
		},
		{
			"NAT behind", `table ip foreign { chain pre { type nat hook prerouting priority dstnat; ip daddr 169.254.169.254 tcp dport 80 dnat to 10.0.0.1:1; }; }`,
			[]iptables.Rule{{Table: "ip foreign", Chain: "pre", Position: 1, Text: "ip daddr 169.254.169.254 tcp dport 80 dnat ip to 10.0.0.1:1"}},
		},
		{
			"notrack by prefix", `table inet foreign { chain raw { type filter hook prerouting priority raw; ip daddr 169.254.0.0/16 notrack; }; }`,
			[]iptables.Rule{{Table: "inet foreign", Chain: "raw", Position: 1, Text: "ip daddr 169.254.0.0/16 notrack", Ahead: true}},
		},
		{
			"a prefix of odd length", `table ip foreign { chain raw { type filter hook prerouting priority raw; ip daddr 169.254.160.0/20 drop; }; }`,
			[]iptables.Rule{{Table: "ip foreign", Chain: "raw", Position: 1, Text: "ip daddr 169.254.160.0/20 drop", Ahead: true}},
		},
		{
			"by way of a jump", `table ip6 foreign { chain other { ip6 daddr fd00:ec2::254 drop; }; chain pre { type filter hook prerouting priority raw; jump other; }; }`,
			[]iptables.Rule{{Table: "ip6 foreign", Chain: "other", Position: 1, Text: "ip6 daddr fd00:ec2::254 drop", Ahead: true}},
		},
		{
			"one that only counts", `table ip foreign { chain raw { type filter hook prerouting priority raw; ip daddr 169.254.169.254 counter comment "watch"; }; }`,
			[]iptables.Rule{{Table: "ip foreign", Chain: "raw", Position: 1, Text: `ip daddr 169.254.169.254 counter comment "watch"`}},
		},
		{
			"of the host's own requests", `table ip foreign { chain out { type filter hook output priority raw; ip daddr 169.254.169.254 drop; }; }`,
			[]iptables.Rule{{Table: "ip foreign", Chain: "out", Position: 1, Text: "ip daddr 169.254.169.254 drop"}},
		},
		{
			"a set", `table ip foreign { set s { type ipv4_addr; elements = { 10.0.0.1, 169.254.169.254 }; }; chain raw { type filter hook prerouting priority raw; ip daddr @s drop; }; }`,
			[]iptables.Rule{{Table: "ip foreign", Chain: "raw", Position: 1, Text: "ip daddr @s drop", Ahead: true}},
		},
		{
			"a set of ranges", `table ip6 foreign { set s { type ipv6_addr; flags interval; elements = { fd00:ec2::/64, fd00:ec3::1 }; }; chain raw { type filter hook prerouting priority raw; ip6 daddr @s notrack; }; }`,
			[]iptables.Rule{{Table: "ip6 foreign", Chain: "raw", Position: 1, Text: "ip6 daddr @s notrack", Ahead: true}},
		},
		{
			"a list", `table ip foreign { chain raw { type filter hook prerouting priority raw; ip daddr { 10.0.0.1, 169.254.169.254 } counter; }; }`,
			[]iptables.Rule{{Table: "ip foreign", Chain: "raw", Position: 1, Text: "ip daddr @__set0 counter"}},
		},
		{
			"a map of verdicts", `table ip foreign { chain raw { type filter hook prerouting priority raw; ip daddr vmap { 169.254.169.254 : drop }; }; }`,
			[]iptables.Rule{{Table: "ip foreign", Chain: "raw", Position: 1, Text: "ip daddr vmap @__map0", Ahead: true}},
		},
		{"sets of other addresses", `table ip foreign { set s { type ipv4_addr; elements = { 10.0.0.1 }; }; set i { type ipv4_addr; flags interval; elements = { 169.254.0.0/17, 169.254.170.0/24 }; }
			set every { type ipv4_addr; elements = { 169.254.169.254 }; };
			chain raw { type filter hook prerouting priority raw; ip daddr @s drop; ip daddr @i drop; ip saddr @every drop; ip daddr != @every counter; }; }`, nil},
		{"about another address", `table ip foreign { chain raw { type filter hook prerouting priority raw; ip daddr 169.254.169.253 drop; ip saddr 169.254.169.254 drop; ip daddr 169.254.172.0/22 drop; }; }`, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t, testnet.Bridge, config())
			r.apply(t)
			r.nft(t, tt.script)
			s := r.check(t)
			if len(s.Foreign) != len(tt.want) {
				t.Fatalf("got %+v, want %+v", s.Foreign, tt.want)
			}
			first := true
			for i, want := range tt.want {
				first = first && !want.Ahead
				if got := s.Foreign[i]; got != want {
					t.Errorf("got  %+v\nwant %+v", got, want)
				}
			}
			if !s.Complete || s.First != first {
				t.Errorf("got complete %t, first %t; want true, %t", s.Complete, s.First, first)
			}
			if inFront := strings.Contains(tt.name, "NAT in front"); contains(s.Warnings, "is consulted before ours") != inFront {
				t.Errorf("got the warnings %q", s.Warnings)
			}
		})
	}
}

func TestEachBackEndKnowsWhichRulesAreAskedBeforeIts(t *testing.T) {
	legacyDNAT := "-d 169.254.169.254/32 -i eni+ -p tcp --dport 80 -j DNAT --to-destination 10.0.0.10:8182"
	nftDNAT := `iifname "eni*" ip daddr 169.254.169.254 tcp dport 80 counter [DNAT to 10.0.0.10:8182]`
	tests := []struct {
		name  string
		setup func(t *testing.T, r *rig)
		want  map[string]iptables.Rule // :: back end
	}{
		{"appended to iptables-nft", func(t *testing.T, r *rig) {
			r.Node.Run(t, "iptables-nft", dnatRule("-A", testnet.NodeAddr, peerPort)...)
		}, map[string]iptables.Rule{
			"nftables":        {Table: "ip nat", Chain: "PREROUTING", Position: 1, Text: nftDNAT},
			"iptables-nft":    {Table: "ip nat", Chain: "PREROUTING", Position: 2, Text: nftDNAT},
			"iptables-legacy": {Table: "ip nat", Chain: "PREROUTING", Position: 1, Text: nftDNAT, Ahead: true},
		}},
		{"appended to iptables-legacy", func(t *testing.T, r *rig) {
			r.Node.Run(t, "iptables-legacy", dnatRule("-A", testnet.NodeAddr, peerPort)...)
		}, map[string]iptables.Rule{
			"nftables":        {Table: "legacy ip nat", Chain: "PREROUTING", Position: 1, Text: legacyDNAT},
			"iptables-nft":    {Table: "legacy ip nat", Chain: "PREROUTING", Position: 1, Text: legacyDNAT, Ahead: true},
			"iptables-legacy": {Table: "legacy ip nat", Chain: "PREROUTING", Position: 2, Text: legacyDNAT},
		}},
		{"notrack by way of a jump in iptables-legacy", func(t *testing.T, r *rig) {
			r.Node.Run(t, "iptables-legacy", "-t", "raw", "-N", "THEIRS")
			r.Node.Run(t, "iptables-legacy", "-t", "raw", "-A", "THEIRS", "!", "-p", "udp", "-d", "169.254.0.0/16", "-j", "CT", "--notrack")
			r.Node.Run(t, "iptables-legacy", "-t", "raw", "-A", "PREROUTING", "-j", "THEIRS")
		}, map[string]iptables.Rule{
			"nftables":        {Table: "legacy ip raw", Chain: "THEIRS", Position: 1, Text: "-d 169.254.0.0/16 ! -p udp -j CT", Ahead: true},
			"iptables-nft":    {Table: "legacy ip raw", Chain: "THEIRS", Position: 1, Text: "-d 169.254.0.0/16 ! -p udp -j CT", Ahead: true},
			"iptables-legacy": {Table: "legacy ip raw", Chain: "THEIRS", Position: 1, Text: "-d 169.254.0.0/16 ! -p udp -j CT", Ahead: true},
		}},
		{"of the host in ip6tables-legacy", func(t *testing.T, r *rig) {
			r.Node.Run(t, "ip6tables-legacy", "-t", "raw", "-A", "OUTPUT", "-d", testnet.MetadataAddr6, "-m", "comment", "--comment", "x", "-j", "DROP")
			r.Node.Run(t, "ip6tables-legacy", "-t", "raw", "-A", "PREROUTING", "!", "-d", testnet.MetadataAddr6, "-j", "ACCEPT")
		}, map[string]iptables.Rule{
			"nftables":        {Table: "legacy ip6 raw", Chain: "OUTPUT", Position: 1, Text: `-d fd00:ec2::254/128 --comment "x" -j DROP`},
			"iptables-nft":    {Table: "legacy ip6 raw", Chain: "OUTPUT", Position: 1, Text: `-d fd00:ec2::254/128 --comment "x" -j DROP`},
			"iptables-legacy": {Table: "legacy ip6 raw", Chain: "OUTPUT", Position: 1, Text: `-d fd00:ec2::254/128 --comment "x" -j DROP`},
		}},
	}
	eachBackEnd(t, func(t *testing.T, b backEnd, c iptables.Config) {
		for _, tt := range tests {
			t.Run(tt.name, func(t *testing.T) {
				r := newRig(t, testnet.Routed, c)
				r.apply(t)
				tt.setup(t, r)
				s, want := r.check(t), tt.want[b.name]
				if len(s.Foreign) != 1 || s.Foreign[0] != want || s.First == want.Ahead {
					t.Errorf("got  %+v, first %t\nwant %+v", s.Foreign, s.First, want)
				}
			})
		}
	})
}

// Nor does looking make any.
func TestCheckMakesNoTables(t *testing.T) {
	r := newRig(t, testnet.Bridge, config())
	r.apply(t)
	r.check(t)
	if got := r.Node.Run(t, "cat", "/proc/net/ip_tables_names", "/proc/net/ip6_tables_names"); got != "" {
		t.Errorf("got the tables %q of iptables-legacy, want none", got)
	}
}

func TestCheckWarnsOfAnAddressThatIsNotTheNodes(t *testing.T) {
	r := newRig(t, testnet.Bridge, config())
	c := config()
	c.NodeAddrs[0] = c.NodeAddrs[0].Next()
	var err error
	if r.redirect, err = iptables.New(c); err != nil {
		t.Fatal(err)
	}
	r.apply(t)
	if s := r.check(t); !contains(s.Warnings, "10.0.0.11, to which requests for 169.254.169.254 are sent, is no address of this node") {
		t.Errorf("got %q, want a warning about 10.0.0.11", s.Warnings)
	}
}
