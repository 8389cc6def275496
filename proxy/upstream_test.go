package proxy

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

func newTestUpstream(t testing.TB, address string) *upstream {
	t.Helper()
	cfg := Config{MetadataURL: address, UpstreamTimeout: 4 * time.Second}
	u, err := newUpstream(&cfg, &sync.WaitGroup{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(u.close)
	return u
}

func TestNothingOfTheClientReachesTheRealServiceButThePath(t *testing.T) {
	rec := newRecorder(t, nil)
	_, addr := start(t, testConfig(rec.URL))
	got := ask(t, readerAddr, addr, "GET", "//latest//meta-data/spot//instance-action?query",
		"X-Forwarded-For: 10.0.0.1", "X-Forwarded-Host: h", "Forwarded: for=10.0.0.1", "Via: 1.1 proxy", "X-Real-IP: 10.0.0.1",
		"Authorization: Bearer x", "Cookie: a=b", "Accept-Encoding: gzip", "Range: bytes=0-1", "If-None-Match: x",
		"User-Agent: client", "X-Anything: y", "Connection: close, X-Aws-Ec2-Metadata-Token")
	if got.status != http.StatusOK || got.body != nodeSecret {
		t.Fatalf("%+v", got)
	}
	if got.header.Get("X-Node-Secret") != "" {
		t.Error("a header that is not on the list was passed on")
	}
	gets := rec.gets()
	if len(gets) != 1 {
		t.Fatalf("%d requests", len(gets))
	}
	r := gets[0]
	if r.RequestURI != "/latest/meta-data/spot/instance-action" || "http://"+r.Host != rec.URL {
		t.Errorf("the real service was asked for %q at %q", r.RequestURI, r.Host)
	}
	want := http.Header{"User-Agent": {"pod2role"}, tokenHeader: {"upstream-token"}}
	if diff := cmp.Diff(want, r.Header); diff != "" {
		t.Errorf("header (-want +got):\n%s", diff)
	}
}

func TestTheAnswerOfTheRealServiceIsPassedOn(t *testing.T) {
	rec := newRecorder(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodPut:
			http.Error(w, "", http.StatusForbidden)
		case strings.HasSuffix(r.URL.Path, "/events/maintenance/history"):
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Last-Modified", "Mon, 02 Jan 2006 15:04:05 GMT")
			w.Header().Set("Etag", `"1"`)
			w.Header().Set(tokenTTLHeader, "1234")
			w.Header().Set("Set-Cookie", "a=b")
			_, _ = io.WriteString(w, "[]")
		default:
			w.Header().Set("Content-Type", "text/html")
			w.WriteHeader(http.StatusNotFound)
			_, _ = io.WriteString(w, "no such thing")
		}
	})
	_, addr := start(t, testConfig(rec.URL))
	for _, method := range []string{"GET", "HEAD"} {
		got := ask(t, readerAddr, addr, method, "/latest/meta-data/events/maintenance/history")
		got.header.Del("Date")
		want := http.Header{
			"Server": {"EC2ws"}, "Content-Type": {"application/json"}, "Content-Length": {"2"},
			"Last-Modified": {"Mon, 02 Jan 2006 15:04:05 GMT"}, "Etag": {`"1"`},
		}
		if diff := cmp.Diff(want, got.header); diff != "" || got.status != http.StatusOK || (method == "GET") != (got.body == "[]") {
			t.Errorf("%s: status %d, body %q, header (-want +got):\n%s", method, got.status, got.body, diff)
		}
	}
	got := ask(t, readerAddr, addr, "GET", "/latest/meta-data/nothing")
	if got.status != http.StatusNotFound || got.body != "no such thing" || got.header.Get("Content-Type") != "text/html" {
		t.Errorf("%+v", got)
	}
}

func TestWhatCannotChangeIsAskedForOnce(t *testing.T) {
	rec := newRecorder(t, nil)
	_, addr := start(t, testConfig(rec.URL))
	for range 3 {
		for _, path := range []string{zonePath, zonePath + "/", "/latest/dynamic/instance-identity/document", "/latest/meta-data/spot/instance-action"} {
			if got := ask(t, readerAddr, addr, "GET", path); got.status != http.StatusOK {
				t.Errorf("%s: status %d", path, got.status)
			}
		}
	}
	counts := map[string]int{}
	for _, r := range rec.gets() {
		counts[r.URL.Path]++
	}
	want := map[string]int{
		zonePath: 1, zonePath + "/": 1, "/latest/dynamic/instance-identity/document": 1, "/latest/meta-data/spot/instance-action": 3,
	}
	if diff := cmp.Diff(want, counts); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
	if n := rec.puts(); n != 1 {
		t.Errorf("%d tokens were asked for", n)
	}
}

func TestAnErrorIsNotKept(t *testing.T) {
	var calls atomic.Int32
	rec := newRecorder(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet && calls.Add(1) == 1 {
			http.Error(w, "", http.StatusNotFound)
		}
	})
	u := newTestUpstream(t, rec.URL)
	for _, want := range []int{http.StatusNotFound, http.StatusOK} {
		if got, err := u.get(t.Context(), zonePath); err != nil || got.status != want {
			t.Errorf("%+v, %v", got, err)
		}
		if kept := u.cached(zonePath) != nil; kept != (want == http.StatusOK) {
			t.Errorf("status %d: kept %v", want, kept)
		}
	}
}

// TestNoClientChoosesHowManyDocumentsAreKept: the version of a path is the client's choice, and a lenient service
// answers any.
func TestNoClientChoosesHowManyDocumentsAreKept(t *testing.T) {
	rec := newRecorder(t, nil)
	u := newTestUpstream(t, rec.URL)
	for _, version := range []string{"latest", "1.0", "2021-03-23", "x", "latest-1"} {
		for _, slash := range []string{"", "/"} {
			if _, err := u.get(t.Context(), "/"+version+"/meta-data/mac"+slash); err != nil {
				t.Fatal(err)
			}
		}
	}
	if len(u.kept) != 2 {
		t.Errorf("%d are kept, want the one of the latest version, with and without a slash", len(u.kept))
	}
}

// TestARequestToTheRealServiceOutlivesItsClients and is shared by all who ask meanwhile.
func TestARequestToTheRealServiceOutlivesItsClients(t *testing.T) {
	asked, release := make(chan struct{}, 10), make(chan struct{})
	rec := newRecorder(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			asked <- struct{}{}
			<-release
		}
		_, _ = io.WriteString(w, "a")
	})
	u := newTestUpstream(t, rec.URL)
	first, leave := context.WithCancel(t.Context())
	left := make(chan error)
	go func() {
		_, err := u.get(first, zonePath)
		left <- err
	}()
	<-asked
	leave()
	if err := <-left; err == nil {
		t.Error("the client that left got an answer")
	}
	close(release)
	if got, err := u.get(t.Context(), zonePath); err != nil || string(got.body) != "a" {
		t.Errorf("the next: %+v, %v", got, err)
	}
	if len(asked) != 0 || len(rec.gets()) != 1 {
		t.Errorf("%d requests", len(rec.gets()))
	}
	u.owned.Wait()
}

func TestTheOwnTokenIsFetchedAgainWhenItIsRefused(t *testing.T) {
	var minted atomic.Int32
	rec := newRecorder(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodPut:
			if r.Header.Get(tokenTTLHeader) != "21600" {
				t.Errorf("a TTL of %q", r.Header.Get(tokenTTLHeader))
			}
			w.Header().Set(tokenTTLHeader, "21600")
			_, _ = fmt.Fprintf(w, "token-%d", minted.Add(1))
		case r.Header.Get(tokenHeader) != "token-2":
			http.Error(w, "", http.StatusUnauthorized)
		}
	})
	u := newTestUpstream(t, rec.URL)
	if got, err := u.get(t.Context(), zonePath); err != nil || got.status != http.StatusOK {
		t.Errorf("%+v, %v", got, err)
	}
	if n := minted.Load(); n != 2 {
		t.Errorf("%d tokens", n)
	}
}

// TestARealServiceThatRefusesUsIsNoBusinessOfThePods: a 401 would make them fetch tokens of ours for ever.
func TestARealServiceThatRefusesUsIsNoBusinessOfThePods(t *testing.T) {
	for _, status := range []int{http.StatusUnauthorized, http.StatusMovedPermanently} {
		rec := newRecorder(t, func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodGet {
				w.Header().Set("Location", "/latest/user-data")
				w.WriteHeader(status)
			}
		})
		_, addr := start(t, testConfig(rec.URL))
		got := ask(t, readerAddr, addr, "GET", zonePath)
		if got.status != http.StatusServiceUnavailable || got.header.Get("Retry-After") != "1" || got.header.Get("Location") != "" {
			t.Errorf("%d: %+v", status, got)
		}
		for _, r := range rec.gets() {
			if r.URL.Path != zonePath {
				t.Errorf("%d: it was asked for %q", status, r.URL.Path)
			}
		}
	}
}

func TestARealServiceWithoutTokensIsAskedWithout(t *testing.T) {
	for _, status := range []int{http.StatusForbidden, http.StatusNotFound, http.StatusMethodNotAllowed} {
		rec := newRecorder(t, func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPut {
				w.WriteHeader(status)
			} else if r.Header[tokenHeader] != nil {
				t.Errorf("%d: a token was sent", status)
			}
		})
		u := newTestUpstream(t, rec.URL)
		for range 3 {
			if got, err := u.get(t.Context(), "/latest/meta-data/x"); err != nil || got.status != http.StatusOK {
				t.Errorf("%d: %+v, %v", status, got, err)
			}
		}
		if n := rec.puts(); n != 1 {
			t.Errorf("%d: asked for a token %d times", status, n)
		}
	}
}

// TestTheRealServiceIsGivenTimeToBoot: it may refuse connections, or answer 401 or 5xx, for a moment.
func TestTheRealServiceIsGivenTimeToBoot(t *testing.T) {
	var calls atomic.Int32
	rec := newRecorder(t, func(w http.ResponseWriter, r *http.Request) {
		switch n := calls.Add(1); {
		case n == 1:
			panic(http.ErrAbortHandler)
		case n == 2:
			http.Error(w, "", http.StatusServiceUnavailable)
		case r.Method == http.MethodGet && n < 5:
			http.Error(w, "", http.StatusInternalServerError)
		default:
			_, _ = io.WriteString(w, "a")
		}
	})
	u := newTestUpstream(t, rec.URL)
	if got, err := u.get(t.Context(), zonePath); err != nil || got.status != http.StatusOK {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestARealServiceThatIsAwayIsAPassingFailure(t *testing.T) {
	ln := listenLoopback(t)
	_ = ln.Close()
	cfg := testConfig("http://" + ln.Addr().String())
	_, addr := start(t, cfg)
	got := ask(t, readerAddr, addr, "GET", zonePath)
	if got.status != http.StatusServiceUnavailable || got.header.Get("Retry-After") != "1" || got.body != string(errorPage(http.StatusServiceUnavailable)) {
		t.Errorf("%+v", got)
	}
	if got := ask(t, readerAddr, addr, "GET", rolePath+"reader"); got.status != http.StatusOK {
		t.Errorf("credentials do not need it: status %d", got.status)
	}
}

func TestAnAnswerThatIsTooLargeIsNotPassedOn(t *testing.T) {
	rec := newRecorder(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			_, _ = w.Write(make([]byte, maxReply+1))
		}
	})
	u := newTestUpstream(t, rec.URL)
	if got, err := u.ask(t.Context(), zonePath); err == nil || !strings.Contains(err.Error(), "more than") {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestNoProxyOfTheEnvironmentIsUsed(t *testing.T) {
	u := newTestUpstream(t, "http://127.0.0.1:1")
	if u.transport.Proxy != nil || !u.transport.DisableCompression || u.transport.MaxConnsPerHost == 0 {
		t.Errorf("%+v", u.transport)
	}
}

func TestTheOwnTokenIsRenewedBeforeItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		puts, status := 0, http.StatusOK
		s := upstreamSession{send: func(_ context.Context, _, _ string, header http.Header) (*reply, http.Header, error) {
			puts++
			ttl := header.Get(tokenTTLHeader)
			return &reply{status: status, body: fmt.Appendf(nil, "token-%d", puts)}, http.Header{tokenTTLHeader: {ttl}}, nil
		}}
		expect := func(after time.Duration, want string, wantPuts int) {
			t.Helper()
			time.Sleep(after) // the bubble's clock
			got, err := s.token(t.Context())
			if (err != nil) != (want == "error") || (err == nil && got != want) || puts != wantPuts {
				t.Errorf("token %q, error %v, %d PUTs; want %q, %d", got, err, puts, want, wantPuts)
			}
		}
		expect(0, "token-1", 1)
		expect(5*time.Hour-time.Second, "token-1", 1)
		expect(time.Second, "token-2", 2)
		status = http.StatusInternalServerError
		expect(5*time.Hour, "token-2", 3) // the renewal fails, but there is an hour left
		expect(renewalPause-time.Second, "token-2", 3)
		expect(time.Second, "token-2", 4)
		expect(time.Hour, "error", 5)
		status = http.StatusForbidden
		expect(0, "", 6)
		expect(withoutTokens-time.Second, "", 6)
		s.drop("") // a 401 to a request without a token
		status = http.StatusOK
		expect(0, "token-7", 7)
		s.drop("token-1") // of somebody who was late
		expect(0, "token-7", 7)
	})
}

// TestRequestsToTheRealServiceAreLimitedBySource: EC2 throttles the node as a whole, DNS included.
func TestRequestsToTheRealServiceAreLimitedBySource(t *testing.T) {
	rec := newRecorder(t, nil)
	cfg := testConfig(rec.URL)
	cfg.UpstreamRate = 0.25 // a burst of one
	_, addr := start(t, cfg)
	for _, tt := range []struct {
		from, path string
		want       int
	}{
		{readerAddr, zonePath, 200},
		{readerAddr, "/latest/meta-data/spot", 503},
		{readerAddr, zonePath, 200}, // kept
		{readerAddr, listPath, 200},
		{writerAddr, "/latest/meta-data/spot", 200},
	} {
		if got := ask(t, tt.from, addr, "GET", tt.path); got.status != tt.want {
			t.Errorf("%s from %s: status %d, want %d", tt.path, tt.from, got.status, tt.want)
		}
	}
}

func TestLimitsOutliveConnections(t *testing.T) {
	cfg := Config{UpstreamRate: 1, MaxConnections: 10, MaxConnectionsPerSource: 10}
	s := newSources(&cfg)
	addr, _ := peer(fakeConn{addr: &net.TCPAddr{IP: net.ParseIP("::ffff:10.0.0.1"), Port: 1, Zone: "eth0"}})
	if addr.String() != "10.0.0.1" {
		t.Errorf("the address is %s", addr)
	}
	now := time.Now()
	src, _ := s.connect(addr, now)
	for src.upstream.AllowN(now, 1) { // until it is empty
	}
	s.disconnect(src)
	if again, _ := s.connect(addr, now.Add(time.Second)); again != src {
		t.Error("a new connection has new limits")
	}
	s.disconnect(src)
	if later, _ := s.connect(addr, now.Add(time.Hour)); later == src {
		t.Error("an address is never forgotten")
	}
}

type fakeConn struct {
	net.Conn
	addr net.Addr
}

func (c fakeConn) RemoteAddr() net.Addr { return c.addr }
