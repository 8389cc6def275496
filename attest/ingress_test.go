package attest_test

import (
	"net"
	"runtime"
	"testing"

	"pod2role/attest"
)

func TestIngressNamesTheInterfaceAConnectionCameInBy(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux tells")
	}
	loopback, err := net.InterfaceByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	for _, network := range [][2]string{{"tcp4", "127.0.0.1:0"}, {"tcp6", "[::1]:0"}, {"tcp", ":0"}} {
		t.Run(network[0], func(t *testing.T) {
			var plain net.ListenConfig
			plain.SetMultipathTCP(false)
			listener, err := plain.Listen(t.Context(), network[0], network[1])
			if err != nil {
				t.Fatal(err)
			}
			defer listener.Close()
			if err := attest.WithIngress(listener); err != nil {
				t.Fatal(err)
			}
			_, port, _ := net.SplitHostPort(listener.Addr().String())
			for _, host := range []string{"127.0.0.1", "::1"} {
				if network[0] == "tcp4" && host == "::1" || network[0] == "tcp6" && host == "127.0.0.1" {
					continue
				}
				client, err := net.Dial("tcp", net.JoinHostPort(host, port))
				if err != nil {
					t.Fatal(err)
				}
				server, err := listener.Accept()
				if err != nil {
					t.Fatal(err)
				}
				// A connection to the interface's own IPv6 address stands for one that a bridge redirected to the
				// node's: of both the kernel names the interface that holds the address.
				want, wantOK := loopback.Index, true
				if host == "::1" {
					want, wantOK = 0, false
				}
				if index, ok := attest.Ingress(server); ok != wantOK || index != want {
					t.Errorf("to %s: interface %d, %v; want %d, %v", host, index, ok, want, wantOK)
				}
				client.Close()
				server.Close()
			}
		})
	}
}

func TestIngressOfAnythingElseIsNotKnown(t *testing.T) {
	client, server := net.Pipe()
	defer client.Close()
	defer server.Close()
	if index, ok := attest.Ingress(server); ok {
		t.Errorf("interface %d of a pipe", index)
	}
}
