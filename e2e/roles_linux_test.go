package e2e_test

import (
	"errors"
	"io/fs"
	"net/http"
	"os"
	"testing"

	"pod2role/e2e/testnet"
	"pod2role/sandbox/imds"
)

func TestEachPodGetsItsOwnRole(t *testing.T) {
	inEachTopology(t, func(t *testing.T, topology testnet.Topology) {
		n := newNode(t, topology, options{})
		var pods []*pod
		for _, name := range []string{"web", "worker", "cron"} {
			pods = append(pods, n.pod(t, "shop", name, "shop-"+name))
		}
		n.ready(t)
		for _, p := range pods {
			p.expectRole(t, "shop-"+p.name)
			p.expectRole(t, "shop-"+p.name, p.token(t, metadata)...)
			for _, other := range pods {
				if a := p.get(t, listPath+"shop-"+other.name); other != p && a.code != http.StatusForbidden && a.code != http.StatusNotFound {
					t.Errorf("%s asked for shop-%s: got %d %q, want a refusal", p, other.name, a.code, a.body)
				}
			}
		}
		stolen := pods[0].token(t, metadata)
		if a := pods[1].get(t, listPath, stolen...); a.code != http.StatusUnauthorized {
			t.Errorf("a pod with another's token got %d %q, want %d", a.code, a.body, http.StatusUnauthorized)
		}
		for _, call := range n.sts.Calls() {
			if call.Caller != n.imds.CallerARN() || call.SessionName != "pod2role-"+nodeName {
				t.Errorf("STS was called by %q for session %q, want the node's role and the node's name", call.Caller, call.SessionName)
			}
		}
	})
}

func TestPodsGetTheirRolesByIPv6(t *testing.T) {
	inEachTopology(t, func(t *testing.T, topology testnet.Topology) {
		n := newNode(t, topology, options{ipv6: true})
		web, worker := n.pod(t, "shop", "web", "shop-web"), n.pod(t, "shop", "worker", "shop-worker")
		n.ready(t)
		test := func(t *testing.T) {
			for _, p := range []*pod{web, worker} {
				if session, a := p.credentials(t, metadata6, p.token(t, metadata6)...); session.RoleARN != baseARN+"shop-"+p.name {
					t.Errorf("%s got the role %q (%d %q), want its own", p, session.RoleARN, a.code, a.body)
				}
			}
		}
		t.Run("as the kernel is", test)
		// With it, a bridge sends its ports' packets through the node's rules itself, and tells another way where they
		// came in. Kubernetes nodes have it on.
		const bridgeRules = "/proc/sys/net/bridge/bridge-nf-call-ip6tables"
		for _, value := range []string{"0", "1"} {
			err := n.Node.Do(func() error { return os.WriteFile(bridgeRules, []byte(value), 0) })
			if errors.Is(err, fs.ErrNotExist) {
				break // br_netfilter is not loaded
			} else if err != nil {
				t.Fatal(err)
			}
			t.Run("bridge-nf-call-ip6tables="+value, test)
		}
	})
}

func TestIPv6IsLockedWhereTheNodeHasNone(t *testing.T) {
	inEachTopology(t, func(t *testing.T, topology testnet.Topology) {
		n := newNode(t, topology, options{ipv6: true})
		p := n.pod(t, "shop", "web", "shop-web")
		n.options.ipv6 = false // the daemon is not told of it
		n.ready(t)
		if conn, err := p.Dial(t.Context(), metadata6); err == nil {
			_ = conn.Close()
			t.Errorf("a pod reached %s, want a reset", metadata6)
		}
		p.expectRole(t, "shop-web")
	})
}

func TestPodsWithoutARoleOfTheirOwnGetNone(t *testing.T) {
	inEachTopology(t, func(t *testing.T, topology testnet.Topology) {
		n := newNode(t, topology, options{})
		tests := []struct {
			name string
			pod  *pod
			want int
		}{
			{"no annotation", n.pod(t, "shop", "plain", ""), http.StatusNotFound},
			{"a role that the namespace does not allow", n.pod(t, "shop", "thief", "admin"), http.StatusForbidden},
			{"a namespace that allows nothing", n.pod(t, "lab", "notebook", "shop-web"), http.StatusForbidden},
			{"a malformed role", n.pod(t, "shop", "typo", "arn:aws:iam::123:role/shop-web"), http.StatusForbidden},
			{"no pod of the cluster", n.stranger(t), http.StatusServiceUnavailable},
		}
		n.ready(t, "--hold=500ms")
		for _, tt := range tests {
			t.Run(tt.name, func(t *testing.T) {
				tt.pod.expectRefusal(t, tt.want)
				if a := tt.pod.get(t, listPath+"shop-web"); a.code != tt.want {
					t.Errorf("asked for a role by its name: got %d %q, want %d", a.code, a.body, tt.want)
				}
			})
		}
		if calls := n.sts.Calls(); len(calls) > 0 {
			t.Errorf("STS was asked for %s, want nothing", calls[0].RoleARN)
		}
	})
}

func TestAPodMayAskBeforeTheAPIServerKnowsItsAddress(t *testing.T) {
	inEachTopology(t, func(t *testing.T, topology testnet.Topology) {
		n := newNode(t, topology, options{})
		scheduled := n.schedule(t, "shop", "web", "shop-web")
		n.ready(t)
		n.api.FreezeWatches()

		scheduled.attach(t)
		scheduled.expectRole(t, "shop-web")

		unseen := n.schedule(t, "shop", "worker", "shop-worker")
		unseen.attach(t)
		unseen.expectRole(t, "shop-worker")
	})
}

func TestTokensCanBeRequired(t *testing.T) {
	inEachTopology(t, func(t *testing.T, topology testnet.Topology) {
		n := newNode(t, topology, options{tokens: imds.TokensRequired})
		p := n.pod(t, "shop", "web", "shop-web")
		n.ready(t, "--imds-tokens=required")
		p.expectRefusal(t, http.StatusUnauthorized)
		p.expectRole(t, "shop-web", p.token(t, metadata)...)
	})
}
