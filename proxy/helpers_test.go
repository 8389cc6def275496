package proxy

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"pod2role/credentials"
	"pod2role/mappings"
)

const (
	testBase = "arn:aws:iam::123456789012:role/"

	rolePath = "/latest/meta-data/iam/security-credentials/"
	zonePath = "/latest/meta-data/placement/availability-zone"
)

// The addresses that tests ask from. Each is the pod of a role with the same name, but for the last.
const (
	readerAddr  = "127.0.0.2"
	writerAddr  = "127.0.0.3"
	unknownAddr = "127.0.0.9"
)

func testKey() []byte { return bytes.Repeat([]byte{7}, tokenKeySize) }

func testPod(name string) *mappings.Pod {
	return &mappings.Pod{UID: "uid-" + name, Namespace: "shop", Name: name}
}

// allowedDecision is what a pod gets that may use the role of the same name.
func allowedDecision(role string) *mappings.Decision {
	return &mappings.Decision{
		Verdict: mappings.Allowed,
		Pod:     testPod(role),
		Session: mappings.Session{RoleARN: testBase + role, Name: "pod2role-node"},
		Listing: role,
		Reason:  "allowed by the test",
	}
}

func verdict(v mappings.Verdict) *mappings.Decision {
	return &mappings.Decision{Verdict: v, Pod: testPod("refused"), Reason: "the reason for the operator"}
}

func testSession(role string) *credentials.Session {
	return &credentials.Session{
		Key:             credentials.Key{RoleARN: testBase + role, Name: "pod2role-node"},
		AccessKeyID:     "ASIA" + strings.ToUpper(role),
		SecretAccessKey: credentials.Secret("secret/of+" + role),
		Token:           credentials.Secret("token-of-" + role + strings.Repeat("x", 800)),
		Obtained:        time.Now(),
		Expiration:      time.Now().Add(time.Hour),
	}
}

func listenLoopback(t testing.TB) net.Listener {
	t.Helper()
	ln, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return ln
}

// testConfig knows the pods of readerAddr and writerAddr; at all other addresses is no pod.
func testConfig(upstream string) Config {
	sessions := map[string]*credentials.Session{
		testBase + "reader": testSession("reader"), testBase + "writer": testSession("writer"),
	}
	return Config{
		Decide: func(_ context.Context, addr netip.Addr, _ int) *mappings.Decision {
			switch addr.String() {
			case readerAddr:
				return allowedDecision("reader")
			case writerAddr:
				return allowedDecision("writer")
			}
			return &mappings.Decision{Verdict: mappings.NotAPod}
		},
		Credentials: func(_ context.Context, key credentials.Key) (*credentials.Session, error) {
			return sessions[key.RoleARN], nil
		},
		MetadataURL: upstream,
		TokenKey:    testKey(),
	}
}

// start runs a proxy until the test ends and returns it with its address.
func start(t testing.TB, cfg Config) (*Proxy, string) {
	t.Helper()
	ln := listenLoopback(t)
	return run(t, cfg, ln), ln.Addr().String()
}

// run is start on a listener of the test's.
func run(t testing.TB, cfg Config, ln net.Listener) *Proxy {
	t.Helper()
	p, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx, ln) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("Run returned %v", err)
		}
	})
	return p
}

// client is a connection from a pod.
type client struct {
	net.Conn
	t  testing.TB
	in *bufio.Reader
}

func dial(t testing.TB, from, to string) *client {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	c, err := d.DialContext(t.Context(), "tcp", to)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	return &client{Conn: c, t: t, in: bufio.NewReader(c)}
}

func (c *client) send(raw string) {
	c.t.Helper()
	if _, err := io.WriteString(c, raw); err != nil {
		c.t.Fatal(err)
	}
}

// reply is read without interpretation of anything but the length.
type response struct {
	status int
	header http.Header
	body   string
	close  bool
}

func (c *client) receive(method string) response {
	c.t.Helper()
	got, err := c.tryReceive(method)
	if err != nil {
		c.t.Fatalf("reading an answer: %v", err)
	}
	return got
}

func (c *client) tryReceive(method string) (response, error) {
	resp, err := http.ReadResponse(c.in, &http.Request{Method: method})
	if err != nil {
		return response{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	return response{status: resp.StatusCode, header: resp.Header, body: string(body), close: resp.Close}, err
}

// ask sends one request with the header lines given, on a connection of its own.
func ask(t testing.TB, from, to, method, target string, lines ...string) response {
	t.Helper()
	c := dial(t, from, to)
	c.send(request(method, target, lines...))
	return c.receive(method)
}

func request(method, target string, lines ...string) string {
	return method + " " + target + " HTTP/1.1\r\n" + strings.Join(append([]string{"Host: 169.254.169.254"}, lines...), "\r\n") + "\r\n\r\n"
}

// fetchToken gets a session token as SDKs do.
func fetchToken(t testing.TB, from, to string) string {
	t.Helper()
	got := ask(t, from, to, "PUT", "/latest/api/token", tokenTTLHeader+": 21600")
	if got.status != http.StatusOK {
		t.Fatalf("the token PUT got %d", got.status)
	}
	return got.body
}

// recorder is a real service that understands everything and answers everything with the node's secrets.
type recorder struct {
	*httptest.Server
	mu   sync.Mutex
	hits []*http.Request
	// answer, if set, answers instead; token PUTs too.
	answer func(w http.ResponseWriter, r *http.Request)
}

const nodeSecret = "the node's secret"

func newRecorder(t testing.TB, answer func(http.ResponseWriter, *http.Request)) *recorder {
	t.Helper()
	rec := &recorder{answer: answer}
	rec.Server = httptest.NewServer(rec)
	t.Cleanup(rec.Close)
	return rec
}

func (rec *recorder) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	rec.mu.Lock()
	rec.hits = append(rec.hits, r)
	rec.mu.Unlock()
	switch {
	case rec.answer != nil:
		rec.answer(w, r)
	case r.Method == http.MethodPut:
		w.Header().Set(tokenTTLHeader, r.Header.Get(tokenTTLHeader))
		_, _ = io.WriteString(w, "upstream-token")
	default:
		w.Header().Set("Content-Type", "text/plain")
		w.Header().Set("X-Node-Secret", nodeSecret)
		_, _ = io.WriteString(w, nodeSecret)
	}
}

// gets returns the requests for documents.
func (rec *recorder) gets() []*http.Request {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	var gets []*http.Request
	for _, r := range rec.hits {
		if r.Method != http.MethodPut {
			gets = append(gets, r)
		}
	}
	return gets
}

func (rec *recorder) puts() int {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	n := 0
	for _, r := range rec.hits {
		if r.Method == http.MethodPut {
			n++
		}
	}
	return n
}
