package e2e_test

import (
	"net/http"
	"net/netip"
	"testing"
	"time"

	"pod2role/e2e/testnet"
	"pod2role/sandbox/kubeapi"
)

// One pod's network is destroyed and another gets its address, while the daemon knows the API server's old word only.
func TestAnAddressIsNotServedTheRoleOfThePodThatHadItBefore(t *testing.T) {
	seen := func(t *testing.T, n *node) *pod {
		first := n.pod(t, "shop", "first", "shop-first")
		n.ready(t, "--hold=1s")
		first.expectRole(t, "shop-first")
		return first
	}
	// A kubelet tells whole seconds, and one in which the address was somebody else's does not count.
	const second = time.Second
	for name, begin := range map[string]func(t *testing.T, n *node) (first *pod){
		"the kubelet has not reported": seen,
		"the watch is behind": func(t *testing.T, n *node) *pod {
			first := seen(t, n)
			n.api.FreezeWatches()
			return first
		},
		"the pod was never seen": func(t *testing.T, n *node) *pod {
			n.ready(t, "--hold=1s")
			n.api.FreezeWatches()
			n.ahead.Store(int64(-2 * second))
			return n.pod(t, "shop", "first", "shop-first")
		},
	} {
		t.Run(name, func(t *testing.T) {
			inEachTopology(t, func(t *testing.T, topology testnet.Topology) {
				t.Run("records", func(t *testing.T) {
					n := newNode(t, topology, options{})
					first := begin(t, n)
					first.detach(t)
					heir := n.schedule(t, "shop", "heir", "shop-heir")
					heir.attach(t, first.Addr)
					heir.expectRole(t, "shop-heir")
					heir.detach(t)

					// Nobody knows the next one but for its record.
					n.api.SetOutage(kubeapi.Refuse)
					third := n.schedule(t, "shop", "third", "shop-third")
					third.attach(t, first.Addr)
					// The watch may still have told of it while it was being cut: then it has its own role already.
					if session, a := third.credentials(t, metadata); session.RoleARN != "" && session.RoleARN != baseARN+"shop-third" {
						t.Errorf("%s got the role %q (%d %q), want none but its own", third, session.RoleARN, a.code, a.body)
					}
					n.api.SetOutage(kubeapi.Up)
					third.awaitRole(t, "shop-third")
				})
				t.Run("no records", func(t *testing.T) {
					n := newNode(t, topology, options{noRecords: true})
					first := begin(t, n)
					first.detach(t)
					heir := n.schedule(t, "shop", "heir", "shop-heir")
					heir.attach(t, first.Addr)
					heir.expectRefusal(t, http.StatusServiceUnavailable)

					n.ahead.Store(int64(second))
					heir.report(t)
					heir.expectRole(t, "shop-heir") // though the API server shows the other there as well
					first.remove(t)
					n.api.ThawWatches()
					heir.expectRole(t, "shop-heir")
				})
			})
		})
	}
}

// awaitRole asks until the pod gets its role; what it gets before is a refusal that SDKs try again.
func (p *pod) awaitRole(t *testing.T, role string) {
	t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		session, a := p.credentials(t, metadata)
		switch {
		case session.RoleARN == baseARN+role:
			return
		case session.RoleARN != "" || a.code != http.StatusServiceUnavailable && a.code != http.StatusUnauthorized:
			t.Fatalf("%s got the role %q (%d %q), want %s", p, session.RoleARN, a.code, a.body, role)
		}
	}
	t.Errorf("%s did not get %s", p, role)
}

// On EKS with IPv6, pods have an IPv4 address that neither a record nor the API server tells.
func TestAnAddressThatIsRoutedToAPodsInterfaceIsThePods(t *testing.T) {
	n := newNode(t, testnet.Routed, options{})
	first, second := n.pod(t, "shop", "first", "shop-first"), n.pod(t, "shop", "second", "shop-second")
	n.ready(t, "--hold=500ms")
	own, stolen := netip.MustParseAddr("169.254.172.5"), netip.MustParseAddr("169.254.172.6")
	for addr, p := range map[netip.Addr]*pod{own: first, stolen: second} {
		n.Node.Run(t, "ip", "route", "add", addr.String()+"/32", "dev", p.HostInterface)
		first.Run(t, "ip", "address", "add", addr.String()+"/32", "dev", "eth0")
	}
	if a, err := first.askFrom(t, own, listPath); err != nil || a.body != "shop-first" {
		t.Errorf("from an address that is routed to the pod: got %d %q (%v), want its role", a.code, a.body, err)
	}
	if a, err := first.askFrom(t, stolen, listPath); err == nil && a.code == http.StatusOK {
		t.Errorf("from an address that is routed to another pod: got %d %q, want none", a.code, a.body)
	}
}
