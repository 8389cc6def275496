package attest

import (
	"context"
	"net"
	"net/netip"
	"os"
	"runtime"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// inNamespace gives the test a network namespace of its own: the thread that it runs on is never used again.
func inNamespace(t testing.TB) {
	t.Helper()
	runtime.LockOSThread()
	switch err := unix.Unshare(unix.CLONE_NEWNET); {
	case err != nil && os.Getenv("CI") == "true":
		t.Fatalf("making a network namespace: %v", err)
	case err != nil:
		t.Skipf("making a network namespace: %v", err)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func hardware(t testing.TB, mac string) net.HardwareAddr {
	t.Helper()
	parsed, err := net.ParseMAC(mac)
	must(t, err)
	return parsed
}

// bridge is a node with two pods on a bridge, as the kernel has it. Ports 1 and 2 have the MAC addresses first and
// second behind them.
type bridge struct {
	index, port1, port2 int
	first, second       net.HardwareAddr
}

func newBridge(t testing.TB) bridge {
	t.Helper()
	inNamespace(t)
	link := func(l netlink.Link) int {
		must(t, netlink.LinkAdd(l))
		must(t, netlink.LinkSetUp(l))
		return l.Attrs().Index
	}
	named := func(name string, master int) netlink.LinkAttrs {
		attrs := netlink.NewLinkAttrs()
		attrs.Name, attrs.MasterIndex = name, master
		return attrs
	}
	b := bridge{first: hardware(t, "02:00:00:00:00:01"), second: hardware(t, "02:00:00:00:00:02")}
	b.index = link(&netlink.Bridge{LinkAttrs: named("cni0", 0)})
	b.port1 = link(&netlink.Veth{LinkAttrs: named("veth1", b.index), PeerName: "pod1"})
	b.port2 = link(&netlink.Veth{LinkAttrs: named("veth2", b.index), PeerName: "pod2"})
	for port, mac := range map[int]net.HardwareAddr{b.port1: b.first, b.port2: b.second} {
		must(t, netlink.NeighSet(&netlink.Neigh{LinkIndex: port, Family: unix.AF_BRIDGE, Flags: netlink.NTF_MASTER, State: netlink.NUD_NOARP, HardwareAddr: mac}))
	}
	return b
}

// learn lets the node learn that an address has a MAC address, as ARP would.
func (b bridge) learn(t testing.TB, addr netip.Addr, mac net.HardwareAddr) {
	t.Helper()
	must(t, netlink.NeighSet(&netlink.Neigh{LinkIndex: b.index, Family: unix.AF_INET, State: netlink.NUD_REACHABLE, IP: addr.AsSlice(), HardwareAddr: mac}))
}

// unread is an Attest that has read the kernel's state, and whose notifications nobody reads.
func unread(t testing.TB) *Attest {
	t.Helper()
	a, err := New(Config{})
	must(t, err)
	must(t, a.notifications.subscribe())
	t.Cleanup(a.notifications.close)
	must(t, a.read())
	close(a.ready)
	return a
}

// The answer is needed before the kernel's notifications have been read.
func TestCatchingUpShowsAnAddressThatWentThereAndBack(t *testing.T) {
	b := newBridge(t)
	b.learn(t, pod, b.first)
	a := unread(t)
	claim := Claim{Addr: pod, Ingress: b.index, Interface: "veth1", Recorded: true}
	accepted := at(0) // long ago
	a.CatchUp()
	if got, why := a.Check(claim); got != Confirmed || a.MovedSince(pod, accepted) {
		t.Fatalf("before: %v (%s), moved %v", got, why, a.MovedSince(pod, accepted))
	}

	b.learn(t, pod, b.second)
	b.learn(t, pod, b.first)
	if a.MovedSince(pod, accepted) {
		t.Error("asking for a move made a system call")
	}
	a.CatchUp()
	if !a.MovedSince(pod, accepted) {
		t.Error("an address that went there and back has not moved")
	}
	if got, why := a.Check(claim); got != Confirmed {
		t.Errorf("it is back where it was, but the claim is %v (%s)", got, why)
	}
}

func TestCatchingUpShowsAllThatTheKernelTells(t *testing.T) {
	b := newBridge(t)
	b.learn(t, pod, b.first)
	a := unread(t)
	routed := netip.MustParseAddr("10.0.0.9")
	claim := Claim{Addr: pod, Ingress: b.index, Interface: "veth1", Recorded: true}

	must(t, netlink.RouteAdd(&netlink.Route{LinkIndex: b.port2, Dst: &net.IPNet{IP: routed.AsSlice(), Mask: net.CIDRMask(32, 32)}}))
	b.learn(t, pod, hardware(t, "02:00:00:00:00:03"))
	a.CatchUp()
	if got, why := a.Check(Claim{Addr: routed, Ingress: b.port2, Interface: "veth2", Recorded: true}); got != Confirmed {
		t.Errorf("a routed pod is %v (%s), want %v", got, why, Confirmed)
	}
	if got := a.Route(routed); got != "veth2" || a.Route(pod) != "" {
		t.Errorf("the routed pod is behind %q and the bridged one behind %q, want veth2 and none", got, a.Route(pod))
	}
	if got, why := a.Check(claim); got != Refuted {
		t.Errorf("an address behind a MAC address without a port is %v (%s), want %v", got, why, Refuted)
	}

	port, err := netlink.LinkByIndex(b.port1)
	must(t, err)
	must(t, netlink.LinkDel(port))
	a.CatchUp()
	if got, why := a.Check(claim); got != Refuted {
		t.Errorf("a pod whose interface is gone is %v (%s), want %v", got, why, Refuted)
	}
}

// What was lost is not denied: a bridged connection from before the loss has moved.
func TestLostNotificationsEndBridgedConnections(t *testing.T) {
	b := newBridge(t)
	b.learn(t, pod, b.first)
	a := unread(t)
	var lost error
	must(t, a.notifications.control.Control(func(fd uintptr) {
		lost = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, 1) // as small as can be
	}))
	must(t, lost)
	for range 100 {
		b.learn(t, pod, b.second)
		b.learn(t, pod, b.first)
	}
	a.CatchUp()
	accepted := at(1e9) // later than any move
	if !a.MovedSince(pod, accepted) {
		t.Error("though notifications were lost, the address is said not to have moved")
	}
	must(t, a.notifications.subscribe())
	must(t, a.read())
	if a.MovedSince(pod, accepted) {
		t.Error("a connection from after all was read anew has moved")
	}
	if !a.MovedSince(pod, at(0)) {
		t.Error("a connection from before all was read anew has not moved")
	}
}

// Run reads what comes by itself, and anew what was lost.
func TestRunFollowsAndSubscribesAnew(t *testing.T) {
	b := newBridge(t)
	changed := make(chan struct{}, 1)
	a, err := New(Config{OnChange: func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	}})
	must(t, err)
	namespace, err := os.Open("/proc/thread-self/ns/net")
	must(t, err)
	defer namespace.Close()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		if err := unix.Setns(int(namespace.Fd()), unix.CLONE_NEWNET); err != nil {
			ended <- err
			return
		}
		ended <- a.Run(ctx)
	}()
	wait := func(want Result) {
		for got := Result(-1); got != want; got, _ = a.Check(Claim{Addr: pod, Ingress: b.index, Interface: "veth1", Recorded: true}) {
			select {
			case <-changed:
			case err := <-ended:
				t.Fatalf("Run returned %v", err)
			}
		}
	}
	<-a.Ready()
	b.learn(t, pod, b.first)
	wait(Confirmed)

	a.notifications.mu.Lock()
	must(t, a.notifications.control.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, 1) }))
	for range 100 {
		b.learn(t, pod, b.first)
		b.learn(t, pod, b.second)
	}
	a.notifications.mu.Unlock()
	must(t, err)
	wait(Refuted)
	stop()
	if err := <-ended; err != nil {
		t.Errorf("Run returned %v", err)
	}
}

func BenchmarkCatchUp(b *testing.B) {
	newBridge(b)
	a := unread(b)
	b.ReportAllocs()
	for b.Loop() {
		a.CatchUp()
	}
}
