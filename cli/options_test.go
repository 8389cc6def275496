package cli

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"pod2role/cluster"
	"pod2role/config"
	"pod2role/proxy"
	"pod2role/sandbox/sts"
)

const zonePath = "/latest/meta-data/placement/availability-zone"

// TestTheOptionsOfTheMetadataServiceDoWhatTheySay runs the daemon with each and looks at what a pod is told.
func TestTheOptionsOfTheMetadataServiceDoWhatTheySay(t *testing.T) {
	codes := func(want map[string]int) func(context.Context, *testing.T, *world) {
		return func(ctx context.Context, t *testing.T, w *world) {
			p := w.pod(t, "web", "shop-web")
			for path, code := range want {
				if got := p.ask(ctx, http.MethodGet, path); got.code != code {
					t.Errorf("%s: %d, want %d", path, got.code, code)
				}
			}
		}
	}
	const mac, tags = "/latest/meta-data/mac", "/latest/meta-data/security-groups"
	for _, tt := range []struct {
		name string
		args []string
		look func(context.Context, *testing.T, *world)
	}{
		{"by default", nil, codes(map[string]int{listPath: 200, zonePath: 200, tags: 200, "/latest/user-data": 404})},
		{"tokens required", []string{"--imds-tokens=required"}, codes(map[string]int{listPath: 401, zonePath: 401})},
		{"strict", []string{"--passthrough=strict"}, codes(map[string]int{listPath: 200, zonePath: 200, tags: 404})},
		{"nothing", []string{"--passthrough=none"}, codes(map[string]int{listPath: 200, zonePath: 404})},
		{"one more path", []string{"--passthrough=none", "--passthrough-allow=/[^/]+/meta-data/mac"}, codes(map[string]int{mac: 200, zonePath: 404})},
		{"direct requests refused", []string{"--direct=refuse"}, codes(map[string]int{listPath: 403, zonePath: 403})},
		{"few connections", []string{"--max-connections-per-source=1"}, func(ctx context.Context, t *testing.T, w *world) {
			crowd(ctx, t, w, 1)
		}},
		{"few requests", []string{"--max-requests-per-source=2"}, func(ctx context.Context, t *testing.T, w *world) {
			crowd(ctx, t, w, 2)
		}},
		{"few documents", []string{"--metadata-rate-per-source=0.1"}, func(ctx context.Context, t *testing.T, w *world) {
			p := w.pod(t, "web", "shop-web")
			for i, want := range []int{200, 503} {
				if got := p.ask(ctx, http.MethodGet, tags); got.code != want {
					t.Errorf("request %d: %d, want %d", i, got.code, want)
				}
			}
		}},
		{"an emulated zone", []string{"--metadata=emulate", "--emulate-zone=us-west-2c", "--emulate-instance-id=i-0abc"}, func(ctx context.Context, t *testing.T, w *world) {
			p := w.pod(t, "web", "shop-web")
			for path, want := range map[string]string{zonePath: "us-west-2c", "/latest/meta-data/instance-id": "i-0abc", "/latest/meta-data/placement/region": "us-west-2"} {
				if got := p.ask(ctx, http.MethodGet, path); got.body != want {
					t.Errorf("%s: %q, want %q", path, got.body, want)
				}
			}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inWorld(t, func(ctx context.Context, w *world) { tt.look(ctx, t, w) }, tt.args...)
		})
	}
}

// crowd holds one request more than the limit allows, all at once, and expects that one is turned away at once.
func crowd(ctx context.Context, t *testing.T, w *world, limit int) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w.sts.SetFaults(sts.Faults{Outage: sts.Hanging})
	p := w.pod(t, "web", "shop-web")
	answers := make(chan answer, limit+1)
	for range limit + 1 {
		go func() { answers <- p.ask(ctx, http.MethodGet, listPath+"shop-web") }()
	}
	// A connection too many is closed before it has asked, and whether its client then reads the 503 or an error is chance.
	if got := <-answers; got.err == nil && got.code != http.StatusServiceUnavailable || got.took > 4*time.Second {
		t.Errorf("one too many got %s after %s", got.outcome(), got.took)
	}
	w.sts.SetFaults(sts.Faults{})
	for range limit {
		if got := <-answers; got.code != http.StatusOK {
			t.Errorf("one within the limit got %s", got.outcome())
		}
	}
}

// TestTheLongestHoldFitsTheWriteTimeout: with each hold that --hold takes, the daemon can be assembled, which refuses a
// write time-out that would cut held requests off.
func TestTheLongestHoldFitsTheWriteTimeout(t *testing.T) {
	for _, hold := range []string{"1ns", "5s", "30s"} {
		t.Run(hold, func(t *testing.T) {
			inWorld(t, func(context.Context, *world) {}, "--hold="+hold)
		})
	}
}

// TestTheEmulatedInstanceIsWhereTheNodeIs where no zone is given.
func TestTheEmulatedInstanceIsWhereTheNodeIs(t *testing.T) {
	inWorld(t, func(ctx context.Context, w *world) {
		p := w.pod(t, "web", "shop-web")
		for path, want := range map[string]string{
			zonePath: demoRegion + "c", "/latest/meta-data/placement/region": demoRegion, "/latest/meta-data/instance-id": "i-00000000000000ace",
			"/latest/meta-data/iam/security-credentials": "shop-web",
		} {
			if got := p.ask(ctx, http.MethodGet, path); got.code != http.StatusOK || got.body != want {
				t.Errorf("%s: %d %q, want %q", path, got.code, got.body, want)
			}
		}
		identity := p.ask(ctx, http.MethodGet, "/latest/dynamic/instance-identity/document")
		if !strings.Contains(identity.body, `"region": "`+demoRegion+`"`) {
			t.Errorf("identity document: %s", identity.body)
		}
		if hits := w.imds.Hits(); len(hits) > 0 {
			t.Errorf("the real service was asked for %s", hits[0].Target)
		}
		w.daemon.mu.Lock()
		w.daemon.location = errNotLocated // as before the node was read
		w.daemon.mu.Unlock()
		if missing := strings.Join(w.daemon.notReady(), "\n"); missing != errNotLocated.Error() {
			t.Errorf("before the node was read the daemon is not ready because of %q", missing)
		}
	}, "--metadata=emulate")
}

func TestWhatIsGivenOfTheEmulatedInstanceWinsOverTheNode(t *testing.T) {
	for _, tt := range []struct{ provider, given, want string }{
		{"aws:///eu-west-1a/i-0123", "", "i-0123"},
		{"aws:///eu-west-1a/i-0123", "i-mine", "i-mine"},
		{"kind://docker/kind/kind-worker", "", ""},
		{"", "", ""},
	} {
		at := cluster.Location{Zone: "eu-west-1a", Region: "eu-west-1", ProviderID: tt.provider}
		c := config.Config{EmulateInstanceID: tt.given, EmulateAccountID: demoAccount}
		want := proxy.Instance{Zone: "eu-west-1a", Region: "eu-west-1", InstanceID: tt.want, AccountID: demoAccount}
		if got := instanceAt(at, c); got != want {
			t.Errorf("%q, %q: %+v", tt.provider, tt.given, got)
		}
	}
}
