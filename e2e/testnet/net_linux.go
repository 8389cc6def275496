package testnet

import (
	"fmt"
	"net"
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// A Topology is the way in which pods are linked to their node.
type Topology string

const (
	// Bridge links the pods to the bridge cni0, as the reference plugin, kubenet, kind and flannel do. Their packets
	// arrive through cni0.
	Bridge Topology = "bridge"
	// Routed gives each pod a veth of its own, named eni0, eni1, ..., and a host route to its address. The pod's gateway
	// is 169.254.1.1 (fe80::1), with a permanent neighbour entry: so does the AWS VPC CNI.
	Routed Topology = "routed"
)

// Topologies returns all of them, for tests that hold in each.
func Topologies() []Topology { return []Topology{Bridge, Routed} }

// Options say what a Net has.
type Options struct {
	Pods int  // how many to begin with
	IPv6 bool // everything has an IPv6 address as well
}

// The addresses. Pods get theirs from 10.244.0.0/24 and fd00:244::/64, from .10 on.
const (
	NodeAddr      = "10.0.0.10"
	NodeAddr6     = "fd00:10::10"
	MetadataAddr  = "169.254.169.254"
	MetadataAddr6 = "fd00:ec2::254"

	routerAddr, routerAddr6   = "10.0.0.1", "fd00:10::1" // the metadata namespace's end of the link to the node
	bridgeAddr, bridgeAddr6   = "10.244.0.1", "fd00:244::1"
	gatewayAddr, gatewayAddr6 = "169.254.1.1", "fe80::1"
	podNet, podNet6           = "10.244.0.0/24", "fd00:244::/64"
	firstPod, firstPod6       = "10.244.0.10", "fd00:244::10"
)

// A Net is a node, its pods and the stand-in's namespace.
type Net struct {
	Node     *Namespace
	Metadata *Namespace
	Pods     []*Pod // those of Options.Pods; AddPod does not append to it

	topology Topology
	ipv6     bool
	made     int // pods so far, destroyed ones as well: interface names are not used twice
	nextAddr netip.Addr
	next6    netip.Addr
}

// New builds a topology that lasts as long as the test. Where namespaces cannot be made the test is skipped, or with
// CI=true fails.
func New(t testing.TB, topology Topology, o Options) *Net {
	t.Helper()
	n := &Net{
		topology: topology,
		ipv6:     o.IPv6,
		nextAddr: netip.MustParseAddr(firstPod),
		next6:    netip.MustParseAddr(firstPod6),
		Node:     newNamespace(t, "node"),
		Metadata: newNamespace(t, "metadata"),
	}
	for _, ns := range []*Namespace{n.Node, n.Metadata} {
		ns.noDAD(t)
	}
	n.Node.sysctl(t, "1", "ipv4/ip_forward", "ipv6/conf/all/forwarding")

	n.linkMetadata(t)
	if topology == Bridge {
		n.addBridge(t)
	}
	for range o.Pods {
		n.Pods = append(n.Pods, n.AddPod(t))
	}
	return n
}

// noDAD spares the test the seconds in which a new IPv6 address cannot be used yet.
func (ns *Namespace) noDAD(t testing.TB) {
	t.Helper()
	ns.sysctl(t, "0", "ipv6/conf/all/accept_dad", "ipv6/conf/default/accept_dad", "ipv6/conf/default/router_solicitations")
}

// linkMetadata joins the node's eth0 and the metadata namespace, which owns the metadata addresses and knows the way
// back to the pods.
func (n *Net) linkMetadata(t testing.TB) {
	t.Helper()
	n.veth(t, n.Node, "eth0", n.Metadata, "eth0")
	n.Node.addAddr(t, "eth0", NodeAddr+"/24")
	n.Metadata.addAddr(t, "eth0", routerAddr+"/24")
	n.Metadata.addAddr(t, "lo", MetadataAddr+"/32")
	n.Node.addRoute(t, "eth0", MetadataAddr+"/32", routerAddr)
	n.Metadata.addRoute(t, "eth0", podNet, NodeAddr)
	if !n.ipv6 {
		return
	}
	n.Node.addAddr(t, "eth0", NodeAddr6+"/64")
	n.Metadata.addAddr(t, "eth0", routerAddr6+"/64")
	n.Metadata.addAddr(t, "lo", MetadataAddr6+"/128")
	n.Node.addRoute(t, "eth0", MetadataAddr6+"/128", routerAddr6)
	n.Metadata.addRoute(t, "eth0", podNet6, NodeAddr6)
}

func (n *Net) addBridge(t testing.TB) {
	t.Helper()
	noSnooping := false // snooping drops neighbour discovery until it has learned who listens
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "cni0"
	if err := n.Node.links.LinkAdd(&netlink.Bridge{LinkAttrs: attrs, MulticastSnooping: &noSnooping}); err != nil {
		t.Fatalf("adding the bridge: %v", err)
	}
	n.Node.setUp(t, "cni0")
	n.Node.addAddr(t, "cni0", bridgeAddr+"/24")
	if n.ipv6 {
		n.Node.addAddr(t, "cni0", bridgeAddr6+"/64")
	}
}

// veth makes a pair of interfaces, one end in each namespace, both up.
func (n *Net) veth(t testing.TB, ns *Namespace, name string, peer *Namespace, peerName string) {
	t.Helper()
	attrs := netlink.NewLinkAttrs()
	attrs.Name = name
	pair := &netlink.Veth{LinkAttrs: attrs, PeerName: peerName, PeerNamespace: netlink.NsFd(peer.handle)}
	if err := ns.links.LinkAdd(pair); err != nil {
		t.Fatalf("adding the veth %s: %v", name, err)
	}
	ns.setUp(t, name)
	peer.setUp(t, peerName)
}

func (ns *Namespace) link(t testing.TB, name string) netlink.Link {
	t.Helper()
	link, err := ns.links.LinkByName(name)
	if err != nil {
		t.Fatalf("looking up interface %s in %s: %v", name, ns.Name, err)
	}
	return link
}

func (ns *Namespace) setUp(t testing.TB, name string) {
	t.Helper()
	if err := ns.links.LinkSetUp(ns.link(t, name)); err != nil {
		t.Fatalf("setting %s up in %s: %v", name, ns.Name, err)
	}
}

func (ns *Namespace) addAddr(t testing.TB, name, prefix string) {
	t.Helper()
	addr := &netlink.Addr{IPNet: ipNet(netip.MustParsePrefix(prefix))}
	if addr.IP.To4() == nil {
		addr.Flags = unix.IFA_F_NODAD
	}
	if err := ns.links.AddrAdd(ns.link(t, name), addr); err != nil {
		t.Fatalf("adding %s to %s in %s: %v", prefix, name, ns.Name, err)
	}
}

// addRoute adds a route through an interface; via may be "": directly on the link.
func (ns *Namespace) addRoute(t testing.TB, name, prefix, via string) {
	t.Helper()
	route := &netlink.Route{LinkIndex: ns.link(t, name).Attrs().Index, Dst: ipNet(netip.MustParsePrefix(prefix))}
	if via == "" {
		route.Scope = netlink.SCOPE_LINK
	} else {
		route.Gw = net.ParseIP(via)
	}
	if err := ns.links.RouteAdd(route); err != nil {
		t.Fatalf("adding a route to %s in %s: %v", prefix, ns.Name, err)
	}
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// URL returns http://address:port/path, with brackets around an IPv6 address.
func URL(address string, port uint16, path string) string {
	return fmt.Sprintf("http://%s%s", netip.AddrPortFrom(netip.MustParseAddr(address), port), path)
}
