package testnet_test

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"

	"pod2role/e2e/testnet"
)

func TestMain(m *testing.M) { os.Exit(testnet.Main(m)) }

func get(t *testing.T, p *testnet.Pod, url string) string {
	t.Helper()
	res, err := p.HTTPClient().Get(url)
	if err != nil {
		t.Fatalf("%s: %v", p.Name, err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatalf("%s: reading %s: %v", p.Name, url, err)
	}
	return string(body)
}

func TestPodsReachTheMetadataServiceWhileNoRuleForbidsIt(t *testing.T) {
	for _, topology := range testnet.Topologies() {
		t.Run(string(topology), func(t *testing.T) {
			n := testnet.New(t, topology, testnet.Options{Pods: 2, IPv6: true})
			s := n.ServeMetadata(t)
			if got := s.Segments(t); got != 0 {
				t.Errorf("got %d segments before anybody asked, want 0", got)
			}
			for _, p := range n.Pods {
				for _, addr := range []string{testnet.MetadataAddr, testnet.MetadataAddr6} {
					if got := get(t, p, testnet.URL(addr, 80, "/")); got != testnet.Real {
						t.Errorf("%s got %q from %s, want %q", p.Name, got, addr, testnet.Real)
					}
				}
			}
			if got := s.Accepted(); got != 4 {
				t.Errorf("the stand-in accepted %d connections, want 4", got)
			}
			if s.Segments(t) == 0 {
				t.Error("got no segments after four requests")
			}
		})
	}
}

func TestTheNodeSeesEachPodByItsOwnAddress(t *testing.T) {
	for _, topology := range testnet.Topologies() {
		t.Run(string(topology), func(t *testing.T) {
			n := testnet.New(t, topology, testnet.Options{Pods: 2, IPv6: true})
			for _, p := range n.Pods {
				for node, want := range map[string]netip.Addr{testnet.NodeAddr: p.Addr, testnet.NodeAddr6: p.Addr6} {
					l := n.Node.Listen(t, "tcp", net.JoinHostPort(node, "0"))
					c, err := p.Dial(t.Context(), l.Addr().String())
					if err != nil {
						t.Fatal(err)
					}
					defer c.Close()
					accepted, err := l.Accept()
					if err != nil {
						t.Fatal(err)
					}
					defer accepted.Close()
					if got := netip.MustParseAddrPort(accepted.RemoteAddr().String()).Addr(); got != want {
						t.Errorf("%s: the node sees %s, want %s", p.Name, got, want)
					}
				}
			}
		})
	}
}

func TestAnAddressCanBeGivenToAnotherPod(t *testing.T) {
	for _, topology := range testnet.Topologies() {
		t.Run(string(topology), func(t *testing.T) {
			n := testnet.New(t, topology, testnet.Options{Pods: 1})
			n.ServeMetadata(t)
			first := n.Pods[0]
			get(t, first, testnet.URL(testnet.MetadataAddr, 80, "/"))
			n.Destroy(t, first)

			second := n.AddPod(t, first.Addr)
			if second.Addr != first.Addr || second.HostInterface == first.HostInterface {
				t.Errorf("got %s on %s, want the address %s on another interface", second.Addr, second.HostInterface, first.Addr)
			}
			get(t, second, testnet.URL(testnet.MetadataAddr, 80, "/"))
		})
	}
}

func TestNothingLeadsOutOfTheNamespaces(t *testing.T) {
	n := testnet.New(t, testnet.Bridge, testnet.Options{Pods: 1, IPv6: true})
	for _, ns := range []*testnet.Namespace{n.Node, n.Metadata} {
		if _, err := ns.Dial(t.Context(), "192.0.2.1:80"); !errors.Is(err, syscall.ENETUNREACH) {
			t.Errorf("%s: got %v, want %v", ns.Name, err, syscall.ENETUNREACH)
		}
	}
}

func TestCommandsRunInside(t *testing.T) {
	n := testnet.New(t, testnet.Routed, testnet.Options{Pods: 1})
	if out := n.Node.Run(t, "ip", "-brief", "address"); !strings.Contains(out, testnet.NodeAddr) {
		t.Errorf("got %q, want %s in it", out, testnet.NodeAddr)
	}
}
