package e2e_test

import (
	"net"
	"net/http"
	"testing"

	"pod2role/e2e/testnet"
)

func TestOnlyWhatWasRedirectedIsServed(t *testing.T) {
	inEachTopology(t, func(t *testing.T, topology testnet.Topology) {
		n := newNode(t, topology, options{})
		p := n.pod(t, "shop", "web", "shop-web")
		n.ready(t)
		p.expectRole(t, "shop-web")
		for _, node := range nodeAddrs(topology) {
			direct := net.JoinHostPort(node, "8181")
			for _, target := range []string{listPath, listPath + "shop-web", "/latest/meta-data/instance-id"} {
				if a := p.ask(t, direct, http.MethodGet, target); a.code != http.StatusForbidden {
					t.Errorf("%s%s: got %d %q, want %d", direct, target, a.code, a.body, http.StatusForbidden)
				}
			}
		}
	})
}

// nodeAddrs are the addresses at which a pod can reach the node.
func nodeAddrs(topology testnet.Topology) []string {
	if topology == testnet.Bridge {
		return []string{testnet.NodeAddr, "10.244.0.1"}
	}
	return []string{testnet.NodeAddr}
}

func TestNothingThatARequestSaysChangesWhoIsAsking(t *testing.T) {
	inEachTopology(t, func(t *testing.T, topology testnet.Topology) {
		n := newNode(t, topology, options{})
		victim := n.pod(t, "shop", "victim", "shop-victim")
		p := n.pod(t, "shop", "web", "shop-web")
		n.ready(t)
		for _, header := range []string{"X-Forwarded-For", "Forwarded", "X-Real-IP", "X-Client-IP", "True-Client-IP", "X-Original-Forwarded-For", "Via"} {
			p.expectRole(t, "shop-web", header, victim.Addr.String())
			if a := p.get(t, listPath+"shop-victim", header, victim.Addr.String()); a.code != http.StatusForbidden && a.code != http.StatusNotFound {
				t.Errorf("%s with another pod's address: got %d %q, want a refusal", header, a.code, a.body)
			}
		}
	})
}

// A documented limit: what runs in the node's own network is the node.
func TestTheNodesOwnRequestsAreNotRedirected(t *testing.T) {
	inEachTopology(t, func(t *testing.T, topology testnet.Topology) {
		n := newNode(t, topology, options{})
		n.ready(t)
		a, err := exchange(t.Context(), n.Node, metadata, http.MethodGet, "/latest/meta-data/instance-id")
		if err != nil || a.code != http.StatusOK || a.body != n.imds.Config().InstanceID {
			t.Errorf("got %d %q (%v), want the instance's ID", a.code, a.body, err)
		}
		hits := n.imds.Hits()
		if last := hits[len(hits)-1]; last.Header.Get("User-Agent") != "e2e" {
			t.Errorf("the metadata service was asked by %q, want this test", last.Header.Get("User-Agent"))
		}
	})
}
