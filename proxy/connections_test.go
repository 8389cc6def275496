package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pod2role/mappings"
)

func TestOnlyRedirectedConnectionsAreServed(t *testing.T) {
	for _, tt := range []struct {
		name       string
		redirected bool
		err        error
		want       int
	}{
		{"redirected", true, nil, http.StatusOK},
		{"direct", false, nil, http.StatusForbidden},
		{"not known", true, errors.New("conntrack does not say"), http.StatusForbidden},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rec := newRecorder(t, nil)
			var asked atomic.Int32
			cfg := testConfig(rec.URL)
			cfg.Redirected = func(c net.Conn) (bool, error) {
				if _, ok := c.(*net.TCPConn); !ok {
					t.Errorf("asked about a %T: its socket cannot be looked at", c)
				}
				asked.Add(1)
				return tt.redirected, tt.err
			}
			cfg.Ingress = func(net.Conn) int { return 42 }
			decide := cfg.Decide
			cfg.Decide = func(ctx context.Context, addr netip.Addr, ifindex int) *mappings.Decision {
				if ifindex != 42 {
					t.Errorf("interface %d", ifindex)
				}
				return decide(ctx, addr, ifindex)
			}
			_, addr := start(t, cfg)
			c := dial(t, readerAddr, addr)
			for _, path := range []string{rolePath, rolePath + "reader", zonePath} {
				c.send(request("GET", path))
				got := c.receive("GET")
				if got.status != tt.want || got.close != (tt.want != http.StatusOK) {
					t.Fatalf("%s: status %d, close %v", path, got.status, got.close)
				}
				if got.close {
					if _, err := c.in.ReadByte(); err != io.EOF {
						t.Errorf("the connection is still open: %v", err)
					}
					break
				}
			}
			if n := asked.Load(); n != 1 {
				t.Errorf("asked %d times for one connection", n)
			}
			if n := len(rec.gets()); tt.want != http.StatusOK && n > 0 {
				t.Errorf("the real service was asked %d times", n)
			}
		})
	}
}

func TestNothingInARequestChangesWhoIsAsking(t *testing.T) {
	_, addr := start(t, testConfig("http://127.0.0.1:1"))
	for _, line := range []string{
		"X-Forwarded-For: " + writerAddr, "Forwarded: for=" + writerAddr, "X-Real-IP: " + writerAddr, "Via: 1.1 " + writerAddr,
		"X-Client-IP: " + writerAddr, "True-Client-IP: " + writerAddr, "Host: " + writerAddr,
	} {
		c := dial(t, readerAddr, addr)
		host := "Host: h\r\n"
		if strings.HasPrefix(line, "Host") {
			host = ""
		}
		c.send("GET " + rolePath + "?ip=" + writerAddr + " HTTP/1.1\r\n" + host + line + "\r\n\r\n")
		if got := c.receive("GET"); got.status != http.StatusOK || got.body != "reader" {
			t.Errorf("%s: status %d, body %q", line, got.status, got.body)
		}
	}
}

// TestEveryRequestOfAConnectionIsDecidedAnew: clients keep connections open for longer than decisions stand.
func TestEveryRequestOfAConnectionIsDecidedAnew(t *testing.T) {
	var role atomic.Value
	role.Store("first")
	cfg := testConfig("http://127.0.0.1:1")
	cfg.Decide = func(context.Context, netip.Addr, int) *mappings.Decision {
		return allowedDecision(role.Load().(string))
	}
	_, addr := start(t, cfg)
	c := dial(t, readerAddr, addr)
	for _, want := range []string{"first", "second"} {
		role.Store(want)
		c.send(request("GET", listPath))
		if got := c.receive("GET"); got.body != want {
			t.Errorf("got %q, want %q", got.body, want)
		}
	}
}

func TestOddRequestsHaveDefinedAnswers(t *testing.T) {
	_, addr := start(t, testConfig("http://127.0.0.1:1"))
	big := strings.Repeat("x", maxHeader+8<<10)
	for _, tt := range []struct {
		name, raw string
		status    int
		close     bool
	}{
		{"HTTP/1.0 without a host", "GET " + listPath + " HTTP/1.0\r\n\r\n", 200, true},
		{"HTTP/1.0 that keeps the connection", "GET " + listPath + " HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", 200, false},
		{"HTTP/1.1 without a host", "GET " + listPath + " HTTP/1.1\r\n\r\n", 400, true},
		{"two hosts", request("GET", listPath, "Host: b"), 400, true},
		{"another host", "GET " + listPath + " HTTP/1.1\r\nHost: evil.example\r\n\r\n", 200, false},
		{"HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400, true},
		{"HTTP/3", "GET / HTTP/3.0\r\nHost: h\r\n\r\n", 505, true},
		{"no version", "GET " + listPath + "\r\n\r\n", 400, true},
		{"a body", request("GET", listPath, "Content-Length: 5") + "hello", 200, true},
		{"a body that never comes", request("GET", listPath, "Content-Length: 5"), 200, true},
		{"a body in chunks", request("GET", listPath, "Transfer-Encoding: chunked") + "5\r\nhello\r\n0\r\n\r\n", 200, true},
		{"an empty body", request("GET", listPath, "Content-Length: 0"), 200, false},
		{"two lengths", request("GET", listPath, "Content-Length: 5", "Content-Length: 6") + "hello", 400, true},
		{"a length and chunks", request("GET", listPath, "Content-Length: 5", "Transfer-Encoding: chunked") + "0\r\n\r\n", 200, true},
		{"another transfer coding", request("GET", listPath, "Transfer-Encoding: gzip"), 501, true},
		{"a token PUT with a body", request("PUT", "/latest/api/token", tokenTTLHeader+": 60", "Content-Length: 5") + "hello", 200, true},
		{"a client that waits to be told to go on", request("GET", listPath, "Expect: 100-continue", "Content-Length: 5"), 200, true},
		{"an unknown expectation", request("GET", listPath, "Expect: miracles"), 417, true},
		{"an upgrade", request("GET", listPath, "Connection: Upgrade", "Upgrade: h2c"), 200, false},
		{"a client that closes", request("GET", listPath, "Connection: close"), 200, true},
		{"an expectation with no body", request("GET", listPath, "Expect: 100-continue"), 200, false},
		{"Connection names a token that is not there", request("GET", listPath, "Connection: "+tokenHeader), 200, false},
		{"Connection names a token that is not valid", request("GET", listPath, "Connection: "+tokenHeader, tokenHeader+": x"), 401, false},
		{"Connection names what shows a proxy", request("PUT", "/latest/api/token", "Connection: X-Forwarded-For", "X-Forwarded-For: 10.0.0.1", tokenTTLHeader+": 60"), 403, false},
		{"two tokens", request("GET", listPath, tokenHeader+": x", tokenHeader+": x"), 401, false},
		{"an empty token", request("GET", listPath, tokenHeader+":"), 401, false},
		{"two TTLs", request("PUT", "/latest/api/token", tokenTTLHeader+": 60", tokenTTLHeader+": 60"), 400, false},
		{"the same length twice", request("GET", listPath, "Content-Length: 5", "Content-Length: 5") + "hello", 200, true},
		{"lengths in a list", request("GET", listPath, "Content-Length: 5, 5") + "hello", 400, true},
		{"a length below nothing", request("GET", listPath, "Content-Length: -5"), 400, true},
		{"a length with a sign", request("GET", listPath, "Content-Length: +5") + "hello", 400, true},
		{"chunks and a length of nothing", request("GET", listPath, "Content-Length: 0", "Transfer-Encoding: chunked") + "0\r\n\r\n", 200, true},
		{"chunks twice over", request("GET", listPath, "Transfer-Encoding: chunked, chunked") + "0\r\n\r\n", 501, true},
		{"a transfer coding behind a blank", request("GET", listPath, "Transfer-Encoding : chunked") + "0\r\n\r\n", 400, true},
		{"chunks with bare line feeds", request("GET", listPath, "Transfer-Encoding: chunked") + "5\nhello\n0\n\n", 200, true},
		{"bare line feeds", "GET " + listPath + " HTTP/1.1\nHost: h\n\n", 200, false},
		{"a bare carriage return in a header", request("GET", listPath, "X-A: b\rX-Forwarded-For: c"), 400, true},
		{"a bare carriage return in the target", request("GET", listPath+"\r"), 400, true},
		{"a line feed that ends a header early", request("GET", listPath, "X-A: b\nContent-Length: 5") + "hello", 200, true},
		{"a blank in the target", request("GET", listPath+" x"), 400, true},
		{"the target in absolute form", request("GET", "http://169.254.169.254"+listPath), 200, false},
		{"a target of another host", request("GET", "http://evil.example"+listPath), 200, false},
		{"a target over TLS", request("GET", "https://169.254.169.254"+listPath), 400, false},
		{"the target in authority form", request("GET", "169.254.169.254:80"), 400, true},
		{"a tunnel", request("CONNECT", "169.254.169.254:80"), 400, false},
		{"the target *", request("OPTIONS", "*"), 400, false},
		{"a large header", request("GET", listPath, "X-Large: "+big), 431, true},
		{"a large target", request("GET", "/latest/meta-data/"+big), 431, true},
		{"a folded header", request("GET", listPath, "A: b", " c: d"), 200, false},
		{"a header without a colon", request("GET", listPath, "nonsense"), 400, true},
		{"a header name with a blank", request("GET", listPath, tokenHeader+" : x"), 400, true},
		{"a broken escape", request("GET", listPath+"/%zz"), 400, true},
		{"a NUL in the target", request("GET", listPath+"/\x00"), 400, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := dial(t, readerAddr, addr)
			c.send(tt.raw)
			got := c.receive("GET")
			if got.status != tt.status || got.close != tt.close {
				t.Errorf("status %d, close %v; want %d, %v", got.status, got.close, tt.status, tt.close)
			}
			if strings.Contains(got.body, "ASIA") {
				t.Error("credentials")
			}
		})
	}
}

func TestABodyIsNeverTakenForARequest(t *testing.T) {
	asked := make(chan Request, 10)
	cfg := testConfig("http://127.0.0.1:1")
	cfg.OnRequest = func(r Request) { asked <- r }
	_, addr := start(t, cfg)
	inner := request("GET", rolePath+"reader")
	c := dial(t, readerAddr, addr)
	c.send(request("GET", listPath, "Content-Length: "+fmt.Sprint(len(inner))) + inner + inner)
	_ = c.receive("GET")
	if got, err := c.tryReceive("GET"); err == nil {
		t.Errorf("a second answer: %+v", got)
	}
	if len(asked) != 1 {
		t.Errorf("%d requests", len(asked))
	}
}

// TestASlowClientHarmsItselfOnly: neither a header nor a body that never comes keeps its connection, or anybody else.
func TestASlowClientHarmsItselfOnly(t *testing.T) {
	cfg := testConfig("http://127.0.0.1:1")
	cfg.ReadHeaderTimeout = 50 * time.Millisecond
	cfg.IdleTimeout = 50 * time.Millisecond
	_, addr := start(t, cfg)
	for _, raw := range []string{
		"", "GET " + listPath, "GET " + listPath + " HTTP/1.1\r\nHost: h\r\nX-Slow",
		request("GET", listPath, "Content-Length: 5"),
		request("GET", listPath), // and then nothing
	} {
		c := dial(t, writerAddr, addr)
		c.send(raw)
		if got := ask(t, readerAddr, addr, "GET", listPath); got.status != http.StatusOK {
			t.Errorf("another client got %d", got.status)
		}
		if _, err := io.Copy(io.Discard, c.in); err != nil && !errors.Is(err, net.ErrClosed) && !strings.Contains(err.Error(), "reset") {
			t.Errorf("%q: the connection was not closed: %v", raw, err)
		}
	}
}

func TestConnectionsAreLimitedBySourceAndInTotal(t *testing.T) {
	cfg := testConfig("http://127.0.0.1:1")
	cfg.MaxConnectionsPerSource = 2
	cfg.MaxConnections = 3
	p, addr := start(t, cfg)

	open := []*client{dial(t, readerAddr, addr), dial(t, readerAddr, addr)}
	for _, c := range open { // each has been accepted once it was answered
		c.send(request("GET", listPath))
		_ = c.receive("GET")
	}
	over := dial(t, readerAddr, addr)
	over.send(request("GET", rolePath+"reader"))
	got := over.receive("GET")
	if got.status != http.StatusServiceUnavailable || got.header.Get("Retry-After") != "1" || !got.close {
		t.Errorf("the third from one source: %+v", got)
	}
	other := dial(t, writerAddr, addr)
	other.send(request("GET", listPath))
	if got := other.receive("GET"); got.status != http.StatusOK {
		t.Errorf("another source: %+v", got)
	}
	if got := ask(t, "127.0.0.4", addr, "GET", listPath); got.status != http.StatusServiceUnavailable {
		t.Errorf("the fourth in total: %+v", got)
	}
	if n := p.sources.connections(); n != 3 {
		t.Errorf("%d connections are counted", n)
	}

	_ = open[0].Close()
	waitFor(t, func() bool { return p.sources.connections() == 2 })
	if got := ask(t, readerAddr, addr, "GET", listPath); got.status != http.StatusOK {
		t.Errorf("after one has left: %+v", got)
	}
}

func TestRequestsUnderwayAreLimitedBySource(t *testing.T) {
	release := make(chan struct{})
	let := sync.OnceFunc(func() { close(release) })
	asked := make(chan struct{}, 2)
	cfg := testConfig("http://127.0.0.1:1")
	cfg.MaxRequestsPerSource = 2
	decide := cfg.Decide
	cfg.Decide = func(ctx context.Context, addr netip.Addr, ifindex int) *mappings.Decision {
		if addr.String() == readerAddr {
			asked <- struct{}{}
			<-release
		}
		return decide(ctx, addr, ifindex)
	}
	_, addr := start(t, cfg)
	t.Cleanup(let)
	var held []*client
	for range 2 {
		c := dial(t, readerAddr, addr)
		c.send(request("GET", listPath))
		<-asked
		held = append(held, c)
	}
	if got := ask(t, readerAddr, addr, "GET", listPath); got.status != http.StatusServiceUnavailable || got.header.Get("Retry-After") != "1" {
		t.Errorf("the third: %+v", got)
	}
	if got := ask(t, writerAddr, addr, "GET", listPath); got.status != http.StatusOK {
		t.Errorf("another source: %+v", got)
	}
	let()
	for _, c := range held {
		if got := c.receive("GET"); got.status != http.StatusOK {
			t.Errorf("one that was underway: %+v", got)
		}
	}
}

// TestRunDrains: what is underway is answered, with `Connection: close`, and idle connections do not hold it up.
func TestRunDrains(t *testing.T) {
	cfg := testConfig("http://127.0.0.1:1")
	cfg.Drain = 20 * time.Second
	asked, release := make(chan struct{}), make(chan struct{})
	cfg.Decide = func(context.Context, netip.Addr, int) *mappings.Decision {
		asked <- struct{}{}
		<-release
		return allowedDecision("reader")
	}
	p, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ln := listenLoopback(t)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx, ln) }()
	c := dial(t, readerAddr, ln.Addr().String())
	c.send(request("GET", rolePath+"reader"))
	<-asked
	stop()
	waitFor(t, func() bool { // until it has stopped to listen
		nc, err := new(net.Dialer).DialContext(t.Context(), "tcp", ln.Addr().String())
		if err == nil {
			_ = nc.Close()
		}
		return err != nil
	})
	close(release)
	if got := c.receive("GET"); got.status != http.StatusOK || !got.close {
		t.Errorf("status %d, close %v", got.status, got.close)
	}
	if err := <-ended; err != nil {
		t.Errorf("Run returned %v", err)
	}
}

func TestRunDoesNotWaitLongerThanToldTo(t *testing.T) {
	cfg := testConfig("http://127.0.0.1:1")
	cfg.Drain = 0
	asked := make(chan struct{})
	cfg.Decide = func(ctx context.Context, _ netip.Addr, _ int) *mappings.Decision {
		close(asked)
		<-ctx.Done()
		return nil
	}
	cfg.Hold = time.Hour
	p, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ln := listenLoopback(t)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx, ln) }()
	dial(t, readerAddr, ln.Addr().String()).send(request("GET", listPath))
	<-asked
	stop()
	if err := <-ended; err != nil {
		t.Errorf("Run returned %v", err)
	}
}

func TestRunReportsAListenerThatFails(t *testing.T) {
	p, err := New(testConfig("http://127.0.0.1:1"))
	if err != nil {
		t.Fatal(err)
	}
	broken := listenLoopback(t)
	_ = broken.Close()
	good := listenLoopback(t)
	if err := p.Run(t.Context(), good, broken); !errors.Is(err, net.ErrClosed) || !strings.Contains(err.Error(), broken.Addr().String()) {
		t.Errorf("Run returned %v", err)
	}
	if _, err := good.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the other listener: %v", err)
	}
}

func TestAPanicEndsItsConnectionOnly(t *testing.T) {
	cfg := testConfig("http://127.0.0.1:1")
	decide := cfg.Decide
	cfg.Decide = func(ctx context.Context, addr netip.Addr, ifindex int) *mappings.Decision {
		if addr.String() == writerAddr {
			panic("a bug")
		}
		return decide(ctx, addr, ifindex)
	}
	p, addr := start(t, cfg)
	c := dial(t, writerAddr, addr)
	c.send(request("GET", listPath))
	if got, err := c.tryReceive("GET"); err == nil {
		t.Errorf("%+v", got)
	}
	if got := ask(t, readerAddr, addr, "GET", listPath); got.status != http.StatusOK {
		t.Errorf("another client got %d", got.status)
	}
	waitFor(t, func() bool { return p.sources.connections() == 1 }) // the other client's
}

// waitFor waits for something that no event tells of.
func waitFor(t *testing.T, done func() bool) {
	t.Helper()
	deadline := time.After(10 * time.Second)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatal("waited in vain")
		}
	}
}

// The network is asked once for each connection, and memory for each request.
func TestAConnectionCatchesUpOnceBeforeItsFirstDecision(t *testing.T) {
	rec := newRecorder(t, nil)
	var caughtUp, decided, asked atomic.Int32
	cfg := testConfig(rec.URL)
	cfg.CatchUp = func() { caughtUp.Add(1) }
	cfg.Moved = func(addr netip.Addr, accepted time.Time) bool {
		asked.Add(1)
		if age := time.Since(accepted); addr.String() != readerAddr || age < 0 || age > time.Minute {
			t.Errorf("asked for %s, accepted %s ago", addr, age)
		}
		return false
	}
	decide := cfg.Decide
	cfg.Decide = func(ctx context.Context, addr netip.Addr, ifindex int) *mappings.Decision {
		decided.Add(1)
		if caughtUp.Load() != 1 {
			t.Errorf("decided after having caught up %d times, want once", caughtUp.Load())
		}
		return decide(ctx, addr, ifindex)
	}
	_, addr := start(t, cfg)
	c := dial(t, readerAddr, addr)
	c.send(request("GET", "/latest/user-data"))
	c.receive("GET")
	if n := caughtUp.Load(); n != 0 {
		t.Errorf("caught up %d times for a request that needs no identity", n)
	}
	c.send(request("PUT", "/latest/api/token", tokenTTLHeader+": 60"))
	c.receive("PUT")
	for _, path := range []string{rolePath, rolePath + "reader", zonePath} {
		c.send(request("GET", path))
		if got := c.receive("GET"); got.status != http.StatusOK {
			t.Errorf("%s: status %d", path, got.status)
		}
	}
	if caughtUp.Load() != 1 || decided.Load() != 4 || asked.Load() != 5 {
		t.Errorf("caught up %d times, decided %d times, asked %d times for moves; want 1, 4 and 5", caughtUp.Load(), decided.Load(), asked.Load())
	}
}

func TestAConnectionWhoseAddressHasMovedIsEndedWithoutAnAnswer(t *testing.T) {
	for _, tt := range []struct {
		name string
		path string
		at   int32 // at the how manieth question it has moved
	}{
		{"before the list", rolePath, 1},
		{"before the role", rolePath + "reader", 1},
		{"while the role's session was fetched", rolePath + "reader", 2},
		{"before a document", zonePath, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rec := newRecorder(t, nil)
			var asked atomic.Int32
			cfg := testConfig(rec.URL)
			cfg.Moved = func(netip.Addr, time.Time) bool { return asked.Add(1) >= tt.at }
			_, addr := start(t, cfg)
			c := dial(t, readerAddr, addr)
			c.send(request("GET", tt.path))
			got := c.receive("GET")
			if got.status != http.StatusServiceUnavailable || !got.close {
				t.Errorf("status %d, close %v; want %d, and closed", got.status, got.close, http.StatusServiceUnavailable)
			}
			if strings.Contains(got.body, "reader") {
				t.Errorf("got %q", got.body)
			}
		})
	}
	t.Run("before a token", func(t *testing.T) {
		cfg := testConfig(newRecorder(t, nil).URL)
		cfg.Moved = func(netip.Addr, time.Time) bool { return true }
		_, addr := start(t, cfg)
		if got := ask(t, readerAddr, addr, "PUT", "/latest/api/token", tokenTTLHeader+": 60"); got.status != http.StatusServiceUnavailable || !got.close {
			t.Errorf("status %d, close %v; want %d, and closed", got.status, got.close, http.StatusServiceUnavailable)
		}
	})
}
