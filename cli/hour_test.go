package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"pod2role/credentials"
	"pod2role/mappings"
	"pod2role/proxy"
)

// hour is the daemon's half that answers pods, in a test's own time: an hour passes at once. Pods connect through pipes,
// because time in a bubble stands still while a socket is waited for.
type hour struct {
	sessions *credentials.Cache
	registry *prometheus.Registry
	pipes    pipes
	calls    atomic.Int32          // to STS
	latency  atomic.Int64          // of STS
	fail     atomic.Pointer[error] // what STS answers for the pod's role
	key      credentials.Key       // of the only pod
	decision mappings.Decision     // on the only pod
}

// inAnHour runs use in a bubble, with a pod that may have a role, and that is referred to it if it should be.
func inAnHour(t *testing.T, refer bool, use func(ctx context.Context, t *testing.T, h *hour)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		h := &hour{registry: prometheus.NewRegistry(), pipes: pipes{queue: make(chan net.Conn), done: make(chan struct{})}}
		h.decision = mappings.Decision{
			Verdict: mappings.Allowed, Pod: &mappings.Pod{UID: "web", Namespace: "shop", Name: "web"}, Listing: "shop-web",
			Session: mappings.Session{RoleARN: demoBaseARN + "shop-web", Name: "pod2role-node"},
		}
		h.key = credentials.Key(h.decision.Session)
		var err error
		if h.sessions, err = credentials.New(credentials.Config{Assume: h.assume, RevocationGrace: 5 * time.Minute, Registerer: h.registry}); err != nil {
			t.Fatal(err)
		}
		p, err := proxy.New(proxy.Config{
			Decide:      func(context.Context, netip.Addr, int) *mappings.Decision { return &h.decision },
			Credentials: h.sessions.Get, MetadataURL: "http://127.0.0.1:1", TokenKey: make([]byte, 32), Registerer: h.registry,
		})
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 2)
		go func() { ended <- h.sessions.Run(ctx) }()
		go func() { ended <- p.Run(ctx, h.pipes) }()
		if refer {
			h.sessions.Refer("web", h.key)
		}
		use(ctx, t, h)
		stop()
		for range 2 {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	})
}

func (h *hour) assume(ctx context.Context, key credentials.Key, duration time.Duration) (*credentials.Session, error) {
	n := h.calls.Add(1)
	select {
	case <-time.After(time.Duration(h.latency.Load())):
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if err := h.fail.Load(); err != nil && key == h.key {
		return nil, *err
	}
	now := time.Now()
	return &credentials.Session{
		Key: key, AccessKeyID: fmt.Sprintf("ASIA%d", n), SecretAccessKey: "secret", Token: "token", Obtained: now, Expiration: now.Add(duration),
	}, nil
}

// ask asks for the credentials on a connection of its own. It returns the answer's status, and how much life they have.
func (h *hour) ask(ctx context.Context, t *testing.T) (status int, left time.Duration) {
	t.Helper()
	status, body := h.request(ctx, t)
	if status != http.StatusOK {
		if bytes.Contains(body, []byte("ASIA")) {
			t.Errorf("a refusal with status %d has credentials: %s", status, body)
		}
		return status, 0
	}
	var document struct{ Expiration time.Time }
	if err := json.Unmarshal(body, &document); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	return status, time.Until(document.Expiration)
}

func (h *hour) request(ctx context.Context, t *testing.T) (status int, body []byte) {
	t.Helper()
	transport := &http.Transport{DialContext: h.pipes.dial, DisableKeepAlives: true}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://169.254.169.254"+listPath+"shop-web", nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := transport.RoundTrip(r)
	if err != nil {
		return 0, nil
	}
	defer response.Body.Close()
	if body, err = io.ReadAll(response.Body); err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, body
}

// metric returns the sum of a metric's series.
func (h *hour) metric(t *testing.T, name string) float64 {
	t.Helper()
	families, err := h.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	sum := 0.0
	for _, family := range families {
		for _, m := range family.GetMetric() {
			if family.GetName() == name {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return sum
}

// TestACallToSTSOutlivesTheClientThatCausedIt: its next attempt finds the credentials.
func TestACallToSTSOutlivesTheClientThatCausedIt(t *testing.T) {
	inAnHour(t, false, func(ctx context.Context, t *testing.T, h *hour) {
		h.latency.Store(int64(800 * time.Millisecond))
		impatient, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
		defer cancel()
		if status, _ := h.ask(impatient, t); status != 0 {
			t.Errorf("an answer with status %d within half a second", status)
		}
		time.Sleep(time.Second) // the bubble's
		before := time.Now()
		if status, _ := h.ask(ctx, t); status != http.StatusOK || time.Since(before) > 0 {
			t.Errorf("status %d after %s", status, time.Since(before))
		}
		if n := h.calls.Load(); n != 1 {
			t.Errorf("STS was called %d times", n)
		}
	})
}

// TestAnOutageOfSTSIsNotNoticedForAsLongAsSessionsLive: they are served until a minute before their end, and 503 then.
func TestAnOutageOfSTSIsNotNoticedForAsLongAsSessionsLive(t *testing.T) {
	inAnHour(t, true, func(ctx context.Context, t *testing.T, h *hour) {
		begin := time.Now()
		if status, _ := h.ask(ctx, t); status != http.StatusOK {
			t.Fatalf("at first: %d", status)
		}
		down := error(&credentials.Error{Kind: credentials.Unavailable, Code: "ServiceUnavailable", Err: errors.New("STS is away")})
		h.fail.Store(&down)
		for time.Since(begin) < 58*time.Minute {
			before := time.Now()
			if status, left := h.ask(ctx, t); status != http.StatusOK || time.Since(before) > time.Second || left < time.Minute {
				t.Errorf("in minute %.0f: status %d after %s, with %s left", time.Since(begin).Minutes(), status, time.Since(before), left)
			}
			time.Sleep(time.Minute)
		}
		if h.metric(t, "pod2role_credentials_failing") != 1 {
			t.Error("no metric says that the role fails")
		}
		time.Sleep(2 * time.Minute)
		if status, _ := h.ask(ctx, t); status != http.StatusServiceUnavailable {
			t.Errorf("at the end: %d", status)
		}
		if n := h.calls.Load(); n > 100 {
			t.Errorf("STS was called %d times in an hour", n)
		}
	})
}

// TestARoleThatIsTakenAwayIsServedForItsGraceOnly, and STS is not asked more often than the refusal is remembered for.
func TestARoleThatIsTakenAwayIsServedForItsGraceOnly(t *testing.T) {
	inAnHour(t, true, func(ctx context.Context, t *testing.T, h *hour) {
		other := credentials.Key{RoleARN: demoBaseARN + "other", Name: "pod2role-node"} // works on: it is not the node's own fault
		h.sessions.Refer("other", other)
		begin := time.Now()
		_, _ = h.ask(ctx, t)
		time.Sleep(time.Minute)
		denied := error(&credentials.Error{Kind: credentials.Refused, Code: "AccessDenied", Err: errors.New("not allowed")})
		h.fail.Store(&denied)
		refused := time.Duration(0)
		for time.Since(begin) < 59*time.Minute {
			status, _ := h.ask(ctx, t)
			switch {
			case status == http.StatusForbidden && refused == 0:
				refused = time.Since(begin)
			case status == http.StatusOK && refused > 0, status != http.StatusOK && status != http.StatusForbidden:
				t.Errorf("after %s: status %d", time.Since(begin), status)
			}
			time.Sleep(10 * time.Second)
		}
		if refused < 30*time.Minute || refused > 50*time.Minute {
			t.Errorf("refused after %s, want soon after a renewal was, at half of an hour", refused)
		}
		if n := h.calls.Load(); n > 2+60*4+5 {
			t.Errorf("STS was called %d times in an hour: more than once in 15 s", n)
		}
	})
}

// TestAPodIsServedHalfAnHourOfLife at every moment of a day; a client that gets less has to come again soon.
func TestAPodIsServedHalfAnHourOfLife(t *testing.T) {
	inAnHour(t, true, func(ctx context.Context, t *testing.T, h *hour) {
		for range 24 * 60 {
			if status, left := h.ask(ctx, t); status != http.StatusOK || left < 25*time.Minute {
				t.Fatalf("status %d, with %s left", status, left)
			}
			time.Sleep(time.Minute)
		}
		if h.metric(t, "pod2role_credentials_served_life_seconds") != 24*60 {
			t.Error("how much life was served is not recorded")
		}
	})
}

// pipes is a listener whose connections are pipes.
type pipes struct {
	queue chan net.Conn
	done  chan struct{}
}

func (p pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case p.queue <- pipe{server}:
		return client, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (p pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.queue:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p pipes) Close() error {
	select {
	case <-p.done:
	default:
		close(p.done)
	}
	return nil
}

func (p pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 80} }

// pipe is the daemon's end of a connection from the only pod.
type pipe struct{ net.Conn }

func (p pipe) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(10, 0, 0, 7), Port: 1024} }
