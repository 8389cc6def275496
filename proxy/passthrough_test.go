package proxy

import (
	"context"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"pod2role/mappings"
)

func TestModesOpenWhatTheySay(t *testing.T) {
	for _, tt := range []struct {
		name         string
		pass         PassThrough
		open, closed []string
	}{
		{
			name: "standard",
			open: []string{
				"/", "/latest/", "/latest/meta-data/", zonePath, zonePath + "/", "/latest/meta-data/placement/region",
				"/latest/dynamic/instance-identity/document", "/latest/meta-data/tags/instance/Name", "/latest/meta-data/network/interfaces/macs/",
				"/latest/meta-data/services/partition", "/1.0/meta-data/instance-id", "/latest/meta-data/something-new",
			},
			closed: []string{"/latest/user-data", "/latest/meta-data/iam/", "/latest/meta-data/public-keys/"},
		},
		{
			name: "strict", pass: PassThrough{Mode: Strict},
			open: []string{
				zonePath, zonePath + "/", "/latest/meta-data/placement/region", "/latest/meta-data/placement/", "/latest/dynamic/instance-identity/document",
				"/latest/meta-data/instance-id", "/latest/meta-data/spot/instance-action", "/latest/meta-data/services/domain", "/1.0/meta-data/mac",
			},
			closed: []string{
				"/", "/latest/", "/latest/meta-data/", "/latest/meta-data/tags/instance/Name", "/latest/meta-data/network/interfaces/macs/",
				"/latest/meta-data/something-new", "/latest/meta-data/placements", "/placement/region", "/latest/meta-data/mac/x", "/latest/user-data",
			},
		},
		{
			name: "none", pass: PassThrough{Mode: None},
			closed: []string{"/", zonePath, "/latest/dynamic/instance-identity/document", "/latest/user-data"},
		},
		{
			name: "none, with expressions", pass: PassThrough{Mode: None, Allow: []string{"/latest/meta-data/mac", "/latest/a|/latest/b/", "meta-data"}},
			open: []string{"/latest/meta-data/mac", "/latest/meta-data/mac/", "//latest/meta-data//mac", "/latest/a", "/latest/b", "/latest/b/"},
			closed: []string{
				"/1.0/meta-data/mac", "/latest/meta-data/macs", "/x/latest/meta-data/mac", "/latest/a/b", "/latest/meta-data/", "/x/latest/b", "/latest/ab",
			},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rec := newRecorder(t, nil)
			cfg := testConfig(rec.URL)
			cfg.PassThrough = tt.pass
			_, addr := start(t, cfg)
			for status, paths := range map[int][]string{http.StatusOK: tt.open, http.StatusNotFound: tt.closed} {
				for _, path := range paths {
					if got := ask(t, readerAddr, addr, "GET", path); got.status != status {
						t.Errorf("%s: status %d, want %d", path, got.status, status)
					}
				}
			}
		})
	}
}

// TestOnlyPodsReadTheRealService: with a role or without, but known.
func TestOnlyPodsReadTheRealService(t *testing.T) {
	for _, tt := range []struct {
		name     string
		decision *mappings.Decision
		want     int
	}{
		{"allowed", allowedDecision("reader"), 200},
		{"no role", verdict(mappings.NoRole), 200},
		{"forbidden", verdict(mappings.Forbidden), 200},
		{"malformed", verdict(mappings.Malformed), 200},
		{"pending", verdict(mappings.Pending), 503},
		{"ambiguous", verdict(mappings.Ambiguous), 503},
		{"busy", verdict(mappings.Busy), 503},
		{"undecided", verdict(mappings.Undecided), 503},
		{"not a pod", verdict(mappings.NotAPod), 403},
		{"not a pod, no pod", &mappings.Decision{Verdict: mappings.NotAPod}, 403},
		{"allowed, but no pod", &mappings.Decision{Verdict: mappings.Allowed}, 503},
		{"no decision", nil, 503},
		{"a verdict of tomorrow", verdict(99), 503},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rec := newRecorder(t, nil)
			cfg := testConfig(rec.URL)
			cfg.PassThrough.UserData = true
			cfg.Decide = func(context.Context, netip.Addr, int) *mappings.Decision { return tt.decision }
			_, addr := start(t, cfg)
			for _, path := range []string{zonePath, "/latest/user-data"} {
				if got := ask(t, readerAddr, addr, "GET", path); got.status != tt.want {
					t.Errorf("%s: status %d, want %d", path, got.status, tt.want)
				}
			}
			if n := len(rec.hits); tt.want != http.StatusOK && n > 0 {
				t.Errorf("the real service was asked %d times", n)
			}
		})
	}
}

func TestAnEmulatedInstanceTellsSDKsWhereTheyAre(t *testing.T) {
	cfg := testConfig("")
	cfg.Emulate = &Instance{Zone: "eu-west-1b", InstanceID: "i-0abc", AccountID: "123456789012"}
	_, addr := start(t, cfg)
	for path, want := range map[string]string{
		zonePath: "eu-west-1b", zonePath + "/": "eu-west-1b", "/latest/meta-data/placement/region": "eu-west-1",
		"/2021-03-23/meta-data/instance-id": "i-0abc", "/latest/meta-data/services/domain": "amazonaws.com",
		"/latest": "dynamic/\nmeta-data/", "/latest/meta-data/placement/": "availability-zone\nregion",
		"/latest/dynamic/": "instance-identity/", rolePath: "reader",
	} {
		if got := ask(t, readerAddr, addr, "GET", path); got.status != http.StatusOK || got.body != want || got.header.Get("Content-Type") != "text/plain" {
			t.Errorf("%s: %+v", path, got)
		}
	}
	for path, part := range map[string]string{
		"/": "latest", "/latest/meta-data/": "\niam/\n", "/latest/dynamic/instance-identity/document": `"region": "eu-west-1"`,
	} {
		if got := ask(t, readerAddr, addr, "GET", path); got.status != http.StatusOK || !strings.Contains(got.body, part) {
			t.Errorf("%s: %+v", path, got)
		}
	}
	for _, path := range []string{"/latest/meta-data/nothing", "/9999-99-99/meta-data/instance-id", "/latest/user-data"} {
		if got := ask(t, readerAddr, addr, "GET", path); got.status != http.StatusNotFound {
			t.Errorf("%s: status %d", path, got.status)
		}
	}
	for zone, region := range map[string]string{
		"us-west-2-lax-1a": "us-west-2", "us-gov-east-1a": "us-gov-east-1", "us-east-1-wl1-bos-wlz-1": "us-east-1", "cn-north-1a": "cn-north-1",
	} {
		e, err := newEmulation(Instance{Zone: zone})
		if err != nil || string(e.cached("/latest/meta-data/placement/region").body) != region {
			t.Errorf("%s: %v, %v", zone, e, err)
		}
	}
}

// TestAnEmulatedInstanceMayBeLocatedLater: the node's labels are read from the API server, which may be away at first.
func TestAnEmulatedInstanceMayBeLocatedLater(t *testing.T) {
	cfg := testConfig("")
	cfg.Emulate = &Instance{AccountID: "123456789012"}
	p, addr := start(t, cfg)
	if got := ask(t, readerAddr, addr, "GET", zonePath); got.status != http.StatusServiceUnavailable || got.header.Get("Retry-After") != "1" {
		t.Errorf("before: %+v", got)
	}
	if got := ask(t, readerAddr, addr, "GET", rolePath+"reader"); got.status != http.StatusOK {
		t.Errorf("credentials do not need it: status %d", got.status)
	}
	for zone, wrong := range map[string]Instance{"none": {}, "one in no region": {Zone: "here"}} {
		if err := p.SetInstance(wrong); err == nil {
			t.Errorf("zone %s: no error", zone)
		}
	}
	if err := p.SetInstance(Instance{Zone: "zone-of-my-own", Region: "eu-central-1"}); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{zonePath: "zone-of-my-own", "/latest/meta-data/placement/region": "eu-central-1"} {
		if got := ask(t, readerAddr, addr, "GET", path); got.status != http.StatusOK || got.body != want {
			t.Errorf("%s: %+v", path, got)
		}
	}
	if p, _ := start(t, testConfig("http://127.0.0.1:1")); p.SetInstance(Instance{Zone: "eu-west-1a"}) == nil {
		t.Error("an instance was set where the real service answers")
	}
}
