package testnet

import (
	"fmt"
	"net"
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"
)

// A Pod is a namespace with the interface eth0 and a default route to the node.
type Pod struct {
	*Namespace
	Addr          netip.Addr // IPv4
	Addr6         netip.Addr // not valid without Options.IPv6
	HostInterface string     // the node's end of eth0: a port of cni0, or the routed veth
}

// AddPod starts a pod. It has the addresses given, at most one of each family, such as those of a pod that was
// destroyed; what is not given is the next free one.
func (n *Net) AddPod(t testing.TB, addrs ...netip.Addr) *Pod {
	t.Helper()
	prefix := map[Topology]string{Bridge: "veth", Routed: "eni"}[n.topology]
	p := &Pod{
		Namespace:     newNamespace(t, fmt.Sprintf("pod-%d", n.made)),
		HostInterface: fmt.Sprintf("%s%d", prefix, n.made),
	}
	n.made++
	for _, a := range addrs {
		if a.Is4() {
			p.Addr = a
		} else {
			p.Addr6 = a
		}
	}
	if !p.Addr.IsValid() {
		p.Addr, n.nextAddr = n.nextAddr, n.nextAddr.Next()
	}
	if n.ipv6 && !p.Addr6.IsValid() {
		p.Addr6, n.next6 = n.next6, n.next6.Next()
	}

	p.noDAD(t)
	n.veth(t, n.Node, p.HostInterface, p.Namespace, "eth0")
	if n.topology == Bridge {
		n.plug(t, p)
	} else {
		n.route(t, p)
	}
	return p
}

// plug makes the pod's interface a port of the bridge.
func (n *Net) plug(t testing.TB, p *Pod) {
	t.Helper()
	if err := n.Node.links.LinkSetMaster(n.Node.link(t, p.HostInterface), n.Node.link(t, "cni0")); err != nil {
		t.Fatalf("making %s a port of cni0: %v", p.HostInterface, err)
	}
	p.addAddr(t, "eth0", p.Addr.String()+"/24")
	p.addRoute(t, "eth0", "0.0.0.0/0", bridgeAddr)
	if n.ipv6 {
		p.addAddr(t, "eth0", p.Addr6.String()+"/64")
		p.addRoute(t, "eth0", "::/0", bridgeAddr6)
	}
}

// route gives the pod a gateway that exists only as a neighbour entry, and the node a route to the pod's address.
func (n *Net) route(t testing.TB, p *Pod) {
	t.Helper()
	mac := n.Node.link(t, p.HostInterface).Attrs().HardwareAddr
	p.addAddr(t, "eth0", p.Addr.String()+"/32")
	p.addNeighbour(t, gatewayAddr, mac)
	p.addRoute(t, "eth0", gatewayAddr+"/32", "")
	p.addRoute(t, "eth0", "0.0.0.0/0", gatewayAddr)
	n.Node.addRoute(t, p.HostInterface, p.Addr.String()+"/32", "")
	if n.ipv6 {
		p.addAddr(t, "eth0", p.Addr6.String()+"/128")
		p.addNeighbour(t, gatewayAddr6, mac)
		p.addRoute(t, "eth0", "::/0", gatewayAddr6)
		n.Node.addRoute(t, p.HostInterface, p.Addr6.String()+"/128", "")
	}
}

func (p *Pod) addNeighbour(t testing.TB, address string, mac net.HardwareAddr) {
	t.Helper()
	family := netlink.FAMILY_V4
	if netip.MustParseAddr(address).Is6() {
		family = netlink.FAMILY_V6
	}
	if err := p.links.NeighSet(&netlink.Neigh{
		LinkIndex:    p.link(t, "eth0").Attrs().Index,
		Family:       family,
		State:        netlink.NUD_PERMANENT,
		IP:           net.ParseIP(address),
		HardwareAddr: mac,
	}); err != nil {
		t.Fatalf("adding the neighbour %s in %s: %v", address, p.Name, err)
	}
}

// Destroy ends a pod as a CNI plugin does: its interface and the routes through it are gone when Destroy returns. Its
// addresses may then be given to another pod.
func (n *Net) Destroy(t testing.TB, p *Pod) {
	t.Helper()
	if err := n.Node.links.LinkDel(n.Node.link(t, p.HostInterface)); err != nil {
		t.Fatalf("deleting %s: %v", p.HostInterface, err)
	}
	p.close()
}
