package debug_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"pod2role/debug"
)

func handler(t *testing.T, missing ...string) *debug.Debug {
	t.Helper()
	registry := prometheus.NewRegistry()
	counter := prometheus.NewCounter(prometheus.CounterOpts{Name: "seen_total"})
	registry.MustRegister(counter)
	d, err := debug.New(debug.Config{
		NotReady: func() []string { return missing },
		Gatherer: registry,
		Views: []debug.View{{Path: "pods", About: "pods and their roles", Show: func(*http.Request) (any, error) {
			return map[string]string{"a/b": "reader"}, nil
		}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestReadinessSaysWhatIsMissing(t *testing.T) {
	for _, tt := range []struct {
		missing []string
		code    int
		body    string
	}{
		{nil, 200, "ready\n"},
		{[]string{"the watch has not synced", "no rules"}, 503, "not ready: the watch has not synced; no rules\n"},
	} {
		w := httptest.NewRecorder()
		handler(t, tt.missing...).Public().ServeHTTP(w, httptest.NewRequest("GET", "/readyz", nil))
		if w.Code != tt.code || w.Body.String() != tt.body {
			t.Errorf("missing %q: %d %q, want %d %q", tt.missing, w.Code, w.Body, tt.code, tt.body)
		}
	}
}

func TestTheViewsAnswerOnlyRequestsToTheLoopbackInterface(t *testing.T) {
	for _, tt := range []struct {
		host, origin string
		code         int
	}{
		{"127.0.0.1:8183", "", 200},
		{"localhost:8183", "", 200},
		{"[::1]:8183", "", 200},
		{"localhost", "http://localhost", 200},
		{"evil.example", "", 403},
		{"10.0.0.1:8183", "", 403},
		{"", "", 403},
		{"127.0.0.1:8183", "http://evil.example", 403},
		{"127.0.0.1.evil.example", "", 403},
	} {
		for _, path := range []string{"/", "/debug/pods", "/debug/pprof/"} {
			r := httptest.NewRequest("GET", path, nil)
			r.Host = tt.host
			if tt.origin != "" {
				r.Header.Set("Origin", tt.origin)
			}
			w := httptest.NewRecorder()
			handler(t).Loopback().ServeHTTP(w, r)
			if w.Code != tt.code {
				t.Errorf("%s of host %q, origin %q: %d, want %d", path, tt.host, tt.origin, w.Code, tt.code)
			}
		}
	}
}

func TestNoViewIsServedBesideTheMetrics(t *testing.T) {
	for path, code := range map[string]int{"/healthz": 200, "/metrics": 200, "/": 404, "/debug/pods": 404, "/debug/pprof/": 404} {
		w := httptest.NewRecorder()
		r := httptest.NewRequest("GET", path, nil)
		r.Host = "127.0.0.1"
		handler(t).Public().ServeHTTP(w, r)
		if w.Code != code {
			t.Errorf("%s: %d, want %d", path, w.Code, code)
		}
	}
}

func TestRunServesUntilItsContextEnds(t *testing.T) {
	var listeners [2]net.Listener
	for i := range listeners {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		listeners[i] = l
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- handler(t).Run(ctx, listeners[0], listeners[1]) }()
	for url, want := range map[string]string{
		"http://" + listeners[0].Addr().String() + "/metrics": "seen_total 0", "http://" + listeners[1].Addr().String() + "/debug/pods": `"a/b": "reader"`,
		"http://" + listeners[1].Addr().String() + "/": "pods and their roles",
	} {
		response, err := new(http.Client).Get(url)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(response.Body)
		response.Body.Close()
		if err != nil || !strings.Contains(string(body), want) {
			t.Errorf("%s: %q, %v; want %q in it", url, body, err, want)
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Errorf("Run returned %v", err)
	}
}
