package proxy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/sirupsen/logrus"

	"pod2role/credentials"
	"pod2role/mappings"
)

// lines collects log lines.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *lines) all() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.FieldsFunc(l.b.String(), func(r rune) bool { return r == '\n' })
}

func newTestLog(level logrus.Level) (*logrus.Entry, *lines) {
	written := &lines{}
	log := logrus.New()
	log.SetOutput(written)
	log.SetLevel(level)
	log.SetFormatter(&logrus.TextFormatter{DisableTimestamp: true})
	return logrus.NewEntry(log), written
}

func TestEachRequestForARoleIsReportedOnce(t *testing.T) {
	telling := &credentials.Error{Kind: credentials.Refused, Code: "AccessDenied", Err: errors.New("not allowed to assume")}
	for _, tt := range []struct {
		name     string
		from     string
		path     string
		err      error
		want     Request // without the decision and the duration
		level    string
		contains []string
	}{
		{
			"served", readerAddr, rolePath + "reader", nil,
			Request{Route: "role", Role: "reader", Outcome: "served", Status: 200},
			"info",
			[]string{"pod=shop/reader", "role=" + "\"" + testBase + "reader"},
		},
		{"listed", readerAddr, rolePath, nil, Request{Route: "list", Outcome: "served", Status: 200}, "info", nil},
		{
			"another pod's", readerAddr, rolePath + "writer", nil,
			Request{Route: "role", Role: "writer", Outcome: "other-role", Status: 404},
			"warning",
			[]string{"pod=shop/reader", "asked=writer"},
		},
		{
			"refused by STS", readerAddr, rolePath + "reader", telling,
			Request{Route: "role", Role: "reader", Outcome: "refused", Status: 403, Err: telling},
			"warning",
			[]string{"AccessDenied"},
		},
		{
			"no pod", unknownAddr, listPath + "-extended/x", nil,
			Request{Route: "extended-role", Role: "x", Outcome: "not-a-pod", Status: 403},
			"warning",
			[]string{"addr=" + unknownAddr},
		},
		{"not a request for a role", readerAddr, "/latest/user-data", nil, Request{}, "", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			reported := make(chan Request, 2)
			log, written := newTestLog(logrus.DebugLevel)
			cfg := testConfig("http://127.0.0.1:1")
			cfg.Log = log
			cfg.OnRequest = func(r Request) { reported <- r }
			get := cfg.Credentials
			cfg.Credentials = func(ctx context.Context, key credentials.Key) (*credentials.Session, error) {
				if tt.err != nil {
					return nil, tt.err
				}
				return get(ctx, key)
			}
			_, addr := start(t, cfg)
			c := dial(t, tt.from, addr)
			c.send(request("GET", tt.path) + request("GET", "/latest/user-data"))
			_ = c.receive("GET")
			_ = c.receive("GET") // then the first has been reported
			all := written.all()
			if tt.level == "" {
				if len(all)+len(reported) > 0 {
					t.Errorf("reported: %v", all)
				}
				return
			}
			got := <-reported
			if got.Decision == nil || got.Duration <= 0 || got.Addr.String() != tt.from {
				t.Errorf("%+v", got)
			}
			got.Decision, got.Duration, got.Addr = nil, 0, netip.Addr{}
			if diff := cmp.Diff(tt.want, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
				cmp.Comparer(func(a, b error) bool { return errors.Is(a, b) })); diff != "" {
				t.Errorf("report (-want +got):\n%s", diff)
			}
			if len(all) != 1 || len(reported) != 0 {
				t.Fatalf("%d lines: %v", len(all), all)
			}
			for _, part := range append(tt.contains, "level="+tt.level, `msg="a pod asked for its role"`, "outcome="+tt.want.Outcome) {
				if !strings.Contains(all[0], part) {
					t.Errorf("the line has no %q: %s", part, all[0])
				}
			}
			if strings.Contains(all[0], "secret/of") || strings.Contains(all[0], "token-of") {
				t.Errorf("the line has a secret: %s", all[0])
			}
		})
	}
}

func TestTheReasonIsTheOperatorsOnly(t *testing.T) {
	log, written := newTestLog(logrus.InfoLevel)
	cfg := testConfig("http://127.0.0.1:1")
	cfg.Log = log
	cfg.Decide = func(context.Context, netip.Addr, int) *mappings.Decision { return verdict(mappings.Forbidden) }
	_, addr := start(t, cfg)
	c := dial(t, readerAddr, addr)
	c.send(request("GET", listPath) + request("GET", listPath))
	if got := c.receive("GET"); strings.Contains(got.body, "reason") {
		t.Errorf("the pod was told %q", got.body)
	}
	_ = c.receive("GET")
	if all := written.all(); len(all) == 0 || !strings.Contains(all[0], "the reason for the operator") {
		t.Errorf("the log: %v", all)
	}
}

// TestAPodCannotFloodTheLog: what it is not allowed to write is counted.
func TestAPodCannotFloodTheLog(t *testing.T) {
	log, written := newTestLog(logrus.InfoLevel)
	cfg := testConfig("http://127.0.0.1:1")
	cfg.Log = log
	p, addr := start(t, cfg)
	const requests = 10 * linesBurst
	c := dial(t, readerAddr, addr)
	for range requests {
		c.send(request("GET", listPath))
		_ = c.receive("GET")
	}
	if n := len(written.all()); n < linesBurst || n > requests/2 {
		t.Errorf("%d lines for %d requests", n, requests)
	}
	_ = ask(t, writerAddr, addr, "GET", listPath)
	waitFor(t, func() bool { return strings.Contains(written.all()[len(written.all())-1], "addr="+writerAddr) })
	src := p.sources.all[netip.MustParseAddr(readerAddr)]
	if src.omitted.Load() == 0 {
		t.Error("what was omitted is not counted")
	}
	_ = p.entry(&conn{addr: netip.MustParseAddr(readerAddr), source: src})
	if src.omitted.Load() != 0 {
		t.Error("what was omitted is reported twice")
	}
}

func TestALineThatNobodyReadsIsNotCounted(t *testing.T) {
	log, _ := newTestLog(logrus.ErrorLevel)
	cfg := testConfig("http://127.0.0.1:1")
	cfg.Log = log
	p, _ := start(t, cfg)
	src, _ := p.sources.connect(netip.MustParseAddr(readerAddr), time.Now())
	for range 2 * linesBurst {
		if p.mayLog(logrus.InfoLevel, src) {
			t.Fatal("it may be written")
		}
	}
	if src.omitted.Load() != 0 {
		t.Error("it is counted as omitted")
	}
}

func TestRefusedConnectionsAreLogged(t *testing.T) {
	log, written := newTestLog(logrus.InfoLevel)
	registry := prometheus.NewRegistry()
	cfg := testConfig("http://127.0.0.1:1")
	cfg.Log, cfg.Registerer = log, registry
	cfg.Redirected = func(net.Conn) (bool, error) { return false, errors.New("no such connection") }
	p, addr := start(t, cfg)
	_ = ask(t, readerAddr, addr, "GET", listPath)
	if all := written.all(); len(all) != 1 || !strings.Contains(all[0], "no such connection") || !strings.Contains(all[0], "not redirected") {
		t.Errorf("%v", all)
	}
	if n := testutil.ToFloat64(p.metrics.turnedAway.WithLabelValues("direct")); n != 1 {
		t.Errorf("%v are counted", n)
	}
}

// TestMetricsHaveNoLabelThatAClientChooses asks 10,000 times for what was never asked for before, and expects no series
// that was not there after the first of each kind.
func TestMetricsHaveNoLabelThatAClientChooses(t *testing.T) {
	rec := newRecorder(t, func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "", http.StatusNotFound) })
	registry := prometheus.NewRegistry()
	cfg := testConfig(rec.URL)
	cfg.Registerer = registry
	cfg.UpstreamRate = 1e6
	_, addr := start(t, cfg)
	kinds := []func(name string) string{
		func(name string) string { return request("GET", rolePath+name) },
		func(name string) string { return request("X"+name, "/") },
		func(name string) string { return request("GET", "/"+name) },
		func(name string) string { return request("GET", "/"+name+"/user-data") },
		func(name string) string { return request("GET", "/latest/"+name+"/x") },
		func(name string) string { return request("PUT", "/latest/api/token", tokenTTLHeader+": "+name) },
		func(name string) string { return request("GET", "http://"+name+".example"+listPath) },
		func(name string) string { return request("GET", listPath, "X-"+name+": "+name) },
		func(name string) string {
			return "GET " + listPath + "?" + name + " HTTP/1.1\r\nHost: " + name + "\r\n\r\n"
		},
		func(name string) string { return request("GET", "/%6e"+name) },
	}
	const each = 1000
	var before int
	c := dial(t, readerAddr, addr)
	for i := range each {
		for _, kind := range kinds {
			c.send(kind(fmt.Sprintf("name-%d", i)))
			if got := c.receive("GET"); got.close {
				t.Fatalf("%q closed the connection", kind("name"))
			}
		}
		if i == 1 { // the last answer of the first round has been counted
			before = series(t, registry)
		}
	}
	if after := series(t, registry); after != before || before == 0 {
		t.Errorf("%d series, then %d", before, after)
	}
	problems, err := testutil.GatherAndLint(registry)
	if err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
}

// series returns how many series there are of all metrics.
func series(t *testing.T, from prometheus.Gatherer) int {
	t.Helper()
	n, err := testutil.GatherAndCount(from)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
