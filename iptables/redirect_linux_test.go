package iptables_test

import (
	"encoding/json"
	"errors"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"pod2role/e2e/testnet"
	"pod2role/iptables"
)

func TestPodsReachTheProxyAndNeverTheRealService(t *testing.T) {
	for _, topology := range testnet.Topologies() {
		t.Run(string(topology), func(t *testing.T) {
			r := newRig(t, topology, config())
			r.apply(t)
			for _, p := range r.Pods {
				for _, url := range urls() {
					wantAnswer(t, p.Namespace, url, proxied)
				}
			}
			r.wantUnseen(t)
			if got := r.check(t).Redirected; got != 4 {
				t.Errorf("the rules counted %d connections, want 4", got)
			}
		})
	}
}

func TestTheHostsOwnRequestsStayAsTheyAre(t *testing.T) {
	r := newRig(t, testnet.Bridge, config())
	r.apply(t)
	for _, url := range urls() {
		wantAnswer(t, r.Node, url, testnet.Real)
	}
}

func TestRemoveTakesOutAllThatIsOurs(t *testing.T) {
	r := newRig(t, testnet.Routed, config())
	r.apply(t)
	for range 2 { // the second time there is nothing
		if err := r.Node.Do(func() error { return r.redirect.Remove(t.Context()) }); err != nil {
			t.Fatal(err)
		}
	}
	if got := r.nft(t, "list ruleset"); got != "" {
		t.Errorf("got the rules\n%s\nwant none", got)
	}
	for _, url := range urls() {
		wantAnswer(t, r.Pods[0].Namespace, url, testnet.Real)
	}
}

func TestPodsAreRefusedWhileNobodyListens(t *testing.T) {
	r := newRig(t, testnet.Bridge, config())
	r.apply(t)
	for _, l := range r.proxy { // what the kernel does for a process that is killed
		_ = l.Close()
	}
	for _, url := range urls() {
		wantRefused(t, r.Pods[0].Namespace, url)
	}
	r.wantUnseen(t)
}

func TestOnlyTheNamedInterfacesAreThePods(t *testing.T) {
	tests := []struct {
		name, iface string
		want        [2]string // what the pods on eni0 and eni1 get
	}{
		{"all", "auto", [2]string{proxied, proxied}},
		{"a prefix", "eni+", [2]string{proxied, proxied}},
		{"one name", "eni0", [2]string{proxied, testnet.Real}},
		{"all but one", "!eni0", [2]string{testnet.Real, proxied}},
		{"all but a prefix", "!eni+", [2]string{testnet.Real, testnet.Real}},
		{"a list", "cali+,eni1", [2]string{testnet.Real, proxied}},
		{"a list less one", "eni+,!eni1", [2]string{proxied, testnet.Real}},
		{"a name that another begins with", "eni", [2]string{testnet.Real, testnet.Real}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := config()
			c.Interface = tt.iface
			r := newRig(t, testnet.Routed, c)
			r.apply(t)
			for i, p := range r.Pods {
				for _, url := range urls() {
					wantAnswer(t, p.Namespace, url, tt.want[i])
				}
			}
			if s := r.check(t); !s.Complete {
				t.Errorf("got %q, want a complete rule set", s.Problems)
			}
		})
	}
}

func TestAnInterfaceMayAppearAfterTheRules(t *testing.T) {
	c := config()
	c.Interface = "eni2"
	r := newRig(t, testnet.Routed, c)
	r.apply(t)
	if s := r.check(t); !s.Complete || !contains(s.Warnings, "no interface eni2 exists") {
		t.Errorf("got complete %t with %q, want complete and a warning about eni2", s.Complete, s.Warnings)
	}
	p := r.AddPod(t)
	wantAnswer(t, p.Namespace, urls()[0], proxied)
	if s := r.check(t); contains(s.Warnings, "eni2") {
		t.Errorf("got %q after eni2 had appeared", s.Warnings)
	}
	r.wantUnseen(t)
}

func TestConnectionsToTheOldAgentAreCutWhenTheRulesFirstGoIn(t *testing.T) {
	tests := []struct {
		name  string
		setup func(t *testing.T, r *rig)
		cut   bool
	}{
		{"first", func(*testing.T, *rig) {}, true},
		{"on a repair", func(t *testing.T, r *rig) {
			r.apply(t)
			r.nft(t, "flush chain inet pod2role proxy")
		}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t, testnet.Routed, config())
			r.Node.Run(t, "iptables-nft", dnatRule("-A", testnet.NodeAddr, peerPort)...)
			echo := r.Node.Listen(t, "tcp", net.JoinHostPort(testnet.NodeAddr, "8182"))
			tt.setup(t, r)
			pod, err := r.Pods[0].Dial(t.Context(), net.JoinHostPort(testnet.MetadataAddr, "80"))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = pod.Close() }()
			agent, err := echo.Accept()
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = agent.Close() }()
			deadline(t, pod, agent)
			hosts, err := r.Node.Dial(t.Context(), net.JoinHostPort(testnet.MetadataAddr, "80"))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = hosts.Close() }()

			r.apply(t)

			if _, err := pod.Write([]byte("x")); err != nil {
				t.Fatal(err)
			}
			if tt.cut {
				if _, err := pod.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
					t.Errorf("the pod's old connection: got %v, want %v", err, syscall.ECONNRESET)
				}
			} else if _, err := agent.Read(make([]byte, 1)); err != nil {
				t.Errorf("the pod's old connection: got %v, want it to live", err)
			}
			if out := r.Node.Run(t, "conntrack", "-L", "--orig-src", testnet.NodeAddr); !strings.Contains(out, testnet.MetadataAddr) {
				t.Errorf("the host's own connection is gone from conntrack:\n%s", out)
			}
			wantAnswer(t, r.Pods[0].Namespace, urls()[0], proxied)
		})
	}
}

func TestAConnectionKnowsWhereItWasMeantToGo(t *testing.T) {
	r := newRig(t, testnet.Routed, iptables.Config{
		NodeAddrs: []netip.Addr{netip.MustParseAddr(testnet.NodeAddr), netip.MustParseAddr(testnet.NodeAddr6)},
		Port:      9191, // of a listener of this test
	})
	r.apply(t)
	l := r.Node.Listen(t, "tcp", "[::]:9191") // IPv4 arrives on it in mapped form
	only4 := r.Node.Listen(t, "tcp4", "0.0.0.0:9192")
	tests := []struct {
		name, dial, want string
		listener         net.Listener
	}{
		{"IPv4", "169.254.169.254:80", "169.254.169.254:80", l},
		{"IPv6", "[fd00:ec2::254]:80", "[fd00:ec2::254]:80", l},
		{"direct by IPv4", testnet.NodeAddr + ":9191", "", l},
		{"direct by IPv6", "[" + testnet.NodeAddr6 + "]:9191", "", l},
		{"direct to an IPv4 socket", testnet.NodeAddr + ":9192", "", only4},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c, err := r.Pods[0].Dial(t.Context(), tt.dial)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = c.Close() }()
			accepted, err := tt.listener.Accept()
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = accepted.Close() }()
			got, err := iptables.OriginalDestination(accepted)
			redirected, rerr := r.redirect.Redirected(accepted)
			if rerr != nil || redirected != (tt.want != "") {
				t.Errorf("Redirected: got %t, %v; want %t", redirected, rerr, tt.want != "")
			}
			if tt.want == "" {
				if !errors.Is(err, iptables.ErrNotRedirected) {
					t.Errorf("got %s, %v; want %v", got, err, iptables.ErrNotRedirected)
				}
				return
			}
			if err != nil || got.String() != tt.want {
				t.Errorf("got %s, %v; want %s", got, err, tt.want)
			}
		})
	}
}

func TestSomethingThatIsNoSocketHasNoOriginalDestination(t *testing.T) {
	a, b := net.Pipe()
	_, _ = a.Close(), b.Close()
	if _, err := iptables.OriginalDestination(a); err == nil || errors.Is(err, iptables.ErrNotRedirected) {
		t.Errorf("got %v, want an error of another kind than %v", err, iptables.ErrNotRedirected)
	}
}

func TestTheCapabilitiesThatABackEndNeeds(t *testing.T) {
	tests := []struct{ backend, bounding, capEff, wantError string }{
		{"nftables", "-all,+net_admin", "CapEff:\t0000000000001000", ""},
		{"nftables", "-all", "CapEff:\t0000000000000000", "NET_ADMIN"},
		{"iptables-nft", "-all,+net_admin", "CapEff:\t0000000000001000", ""},
		{"iptables-nft", "-all", "CapEff:\t0000000000000000", "NET_ADMIN"},
		{"iptables-legacy", "-all,+net_admin,+net_raw", "CapEff:\t0000000000003000", ""},
		{"iptables-legacy", "-all,+net_admin", "CapEff:\t0000000000001000", "NET_RAW"},
	}
	for _, tt := range tests {
		t.Run(tt.backend+" with "+tt.bounding, func(t *testing.T) {
			t.Setenv("XTABLES_LOCKFILE", t.TempDir()+"/lock")
			r := newRig(t, testnet.Bridge, config())
			// Rules of others, which have to be seen with no more than that.
			r.Node.Run(t, "iptables-legacy", dnatRule("-A", testnet.NodeAddr, peerPort)...)
			self, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			cmd := r.Node.Command("setpriv", "--bounding-set", tt.bounding, self)
			cmd.Env = append(os.Environ(), child+"="+tt.backend)
			out, err := cmd.Output()
			if err != nil {
				t.Fatalf("running the child: %v: %s", err, out)
			}
			var report struct {
				Status, Error string
				NotPermitted  bool `json:"not permitted"`
				Check         iptables.Status
			}
			if err := json.Unmarshal(out, &report); err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(report.Status, tt.capEff) {
				t.Fatalf("the child ran with other capabilities than %q:\n%s", tt.capEff, report.Status)
			}
			if tt.wantError != "" {
				if !report.NotPermitted || !strings.Contains(report.Error, tt.wantError) {
					t.Errorf("got %q, want an error that names %s", report.Error, tt.wantError)
				}
				return
			}
			if report.Error != "" || !report.Check.Complete || len(report.Check.Foreign) != 1 || len(report.Check.Warnings) > 0 {
				t.Errorf("got %q and %+v, want a complete rule set, and the rule of iptables-legacy", report.Error, report.Check)
			}
			wantAnswer(t, r.Pods[0].Namespace, urls()[0], proxied)
			r.wantUnseen(t)
		})
	}
}

func contains(lines []string, part string) bool {
	return strings.Contains(strings.Join(lines, "\n"), part)
}

// deadline makes a test fail instead of hang.
func deadline(t *testing.T, conns ...net.Conn) {
	t.Helper()
	for _, c := range conns {
		if err := c.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
			t.Fatal(err)
		}
	}
}
