package cli

import (
	"net"
	"testing"

	"pod2role/attest"
)

// A connection to the interface's own address stands for one that a bridge redirected to the node's: of both the kernel
// names the interface that holds the address.
func TestTheInterfaceThatHoldsTheNodesIPv6AddressIsNotTakenForThePods(t *testing.T) {
	var plain net.ListenConfig
	plain.SetMultipathTCP(false)
	l, err := plain.Listen(t.Context(), "tcp", "[::1]:0")
	if err != nil {
		t.Skipf("there is no IPv6: %v", err)
	}
	defer l.Close()
	if err := attest.WithIngress(l); err != nil {
		t.Fatal(err)
	}
	client, err := new(net.Dialer).DialContext(t.Context(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	index, ok := attest.Ingress(conn)
	if !ok {
		t.Skip("this kernel does not tell where connections come in")
	}
	if got := ingress(conn); got != 0 {
		t.Errorf("got interface %d, where the kernel said %d, want none", got, index)
	}
}
