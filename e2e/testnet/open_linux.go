package testnet

import (
	"testing"

	"github.com/vishvananda/netns"
)

// Open opens a namespace that somebody else made with "ip netns add NAME". It is there after the test as well; only
// sockets that the test opened inside end with it.
func Open(t testing.TB, name string) *Namespace {
	t.Helper()
	handle, err := netns.GetFromName(name)
	if err != nil {
		t.Fatalf("opening the network namespace %s: %v", name, err)
	}
	ns := &Namespace{Name: name, handle: handle}
	t.Cleanup(ns.close)
	return ns
}
