package testnet

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
)

// A Namespace is one network namespace, held open by a file descriptor of this process.
type Namespace struct {
	Name string // "node", "metadata", "pod-0", ...: for messages only

	handle netns.NsHandle
	links  *netlink.Handle // a netlink socket inside
}

// newNamespace makes an empty namespace with lo up. It ends with the test.
func newNamespace(t testing.TB, name string) *Namespace {
	t.Helper()
	ns := &Namespace{Name: name, handle: netns.None()}
	err := onOwnThread(func() error {
		var err error
		ns.handle, err = netns.New()
		return err
	})
	if err != nil {
		unavailable(t, fmt.Sprintf("making a network namespace needs root or user namespaces: %v", err))
	}
	t.Cleanup(ns.close)
	ns.links, err = netlink.NewHandleAt(ns.handle)
	if err != nil {
		t.Fatalf("opening a netlink socket in %s: %v", name, err)
	}
	lo, err := ns.links.LinkByName("lo")
	if err == nil {
		err = ns.links.LinkSetUp(lo)
	}
	if err != nil {
		t.Fatalf("setting lo up in %s: %v", name, err)
	}
	return ns
}

func (ns *Namespace) close() {
	if ns.links != nil {
		ns.links.Close()
	}
	if ns.handle.IsOpen() {
		_ = ns.handle.Close()
	}
}

// unavailable skips the test with the reason; with CI=true, where nothing may be skipped, it fails it.
func unavailable(t testing.TB, reason string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatal(reason)
	}
	t.Skip(reason)
}

// onOwnThread runs f on a locked thread and afterwards puts the thread back into the namespace in which it was.
func onOwnThread(f func() error) error {
	runtime.LockOSThread()
	before, err := netns.Get()
	if err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("reading the thread's network namespace: %w", err)
	}
	defer func() {
		if err := netns.Set(before); err != nil {
			panic(fmt.Sprintf("testnet: leaving a network namespace: %v", err)) // the thread must not run anything else
		}
		_ = before.Close()
		runtime.UnlockOSThread()
	}()
	return f()
}

// Do runs f with its goroutine's thread inside the namespace, and returns f's error. Sockets that f opens belong to the
// namespace for good. Goroutines that f starts are not inside.
func (ns *Namespace) Do(f func() error) error {
	return onOwnThread(func() error {
		if err := netns.Set(ns.handle); err != nil {
			return fmt.Errorf("entering %s: %w", ns.Name, err)
		}
		return f()
	})
}

// Path is a path by which other programs can enter the namespace while this process lives:
// nsenter --net=<path>.
func (ns *Namespace) Path() string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), int(ns.handle)) }

// Command is exec.Command inside the namespace, by way of nsenter(1) of util-linux.
func (ns *Namespace) Command(name string, args ...string) *exec.Cmd {
	return exec.Command("nsenter", append([]string{"--net=" + ns.Path(), "--", name}, args...)...)
}

// Run runs a command inside the namespace and returns what it printed on both streams; the test ends if it fails.
func (ns *Namespace) Run(t testing.TB, name string, args ...string) string {
	t.Helper()
	out, err := ns.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("in %s: %s %s: %v\n%s", ns.Name, name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// Listen is net.Listen inside the namespace; the test closes the listener when it ends. The address must be an IP.
func (ns *Namespace) Listen(t testing.TB, network, address string) net.Listener {
	t.Helper()
	var l net.Listener
	err := ns.Do(func() (err error) {
		l, err = (&net.ListenConfig{}).Listen(t.Context(), network, address)
		return err
	})
	if err != nil {
		t.Fatalf("listening in %s: %v", ns.Name, err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// Dial connects from inside the namespace by TCP. The address must be an IP and a port.
func (ns *Namespace) Dial(ctx context.Context, address string) (net.Conn, error) {
	return ns.dialContext(ctx, "tcp", address)
}

func (ns *Namespace) dialContext(ctx context.Context, network, address string) (net.Conn, error) {
	var conn net.Conn
	err := ns.Do(func() (err error) {
		conn, err = (&net.Dialer{}).DialContext(ctx, network, address)
		return err
	})
	return conn, err
}

// HTTPClient returns a client whose connections start inside the namespace: a new one for each request, so that each
// meets the node's rules, and none through a proxy. It gives up after 5 s.
func (ns *Namespace) HTTPClient() *http.Client {
	return &http.Client{
		Transport: &http.Transport{DialContext: ns.dialContext, DisableKeepAlives: true},
		Timeout:   5 * time.Second,
	}
}

// sysctl writes kernel settings of the namespace; a path is relative to /proc/sys/net.
func (ns *Namespace) sysctl(t testing.TB, value string, paths ...string) {
	t.Helper()
	for _, path := range paths {
		if err := ns.Do(func() error { return os.WriteFile("/proc/sys/net/"+path, []byte(value), 0) }); err != nil {
			t.Fatalf("setting %s in %s: %v", path, ns.Name, err)
		}
	}
}
