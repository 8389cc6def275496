package proxy

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"pod2role/mappings"
)

func TestTheTokenPUTTakesTTLsAsEC2Does(t *testing.T) {
	_, addr := start(t, testConfig("http://127.0.0.1:1"))
	for _, tt := range []struct {
		name  string
		lines []string
		want  int
	}{
		{"missing", nil, 400},
		{"empty", []string{tokenTTLHeader + ":"}, 400},
		{"zero", []string{tokenTTLHeader + ": 0"}, 400},
		{"too long", []string{tokenTTLHeader + ": 21601"}, 400},
		{"far too long", []string{tokenTTLHeader + ": 99999999999999999999"}, 400},
		{"a word", []string{tokenTTLHeader + ": abc"}, 400},
		{"negative", []string{tokenTTLHeader + ": -1"}, 400},
		{"signed", []string{tokenTTLHeader + ": +60"}, 400},
		{"a fraction", []string{tokenTTLHeader + ": 60.0"}, 400},
		{"hexadecimal", []string{tokenTTLHeader + ": 0x3c"}, 400},
		{"two values", []string{tokenTTLHeader + ": 60,60"}, 400},
		{"twice", []string{tokenTTLHeader + ": 60", tokenTTLHeader + ": 60"}, 400},
		{"shortest", []string{tokenTTLHeader + ": 1"}, 200},
		{"longest", []string{strings.ToLower(tokenTTLHeader) + ": 21600"}, 200},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := ask(t, readerAddr, addr, "PUT", "/latest/api/token", tt.lines...)
			if got.status != tt.want {
				t.Fatalf("status %d, want %d", got.status, tt.want)
			}
			if tt.want != http.StatusOK {
				return
			}
			_, ttl, _ := strings.Cut(tt.lines[0], ": ")
			if echo := got.header.Get(tokenTTLHeader); echo != ttl {
				t.Errorf("the answer says %q, want %q", echo, ttl)
			}
			if got.body == "" || strings.TrimSpace(got.body) != got.body || got.header.Get("Content-Length") == "" ||
				got.header.Get("Content-Type") != "text/plain" || got.header.Get("Server") != "EC2ws" {
				t.Errorf("%+v", got)
			}
		})
	}
}

func TestATokenThatAProxyAsksForIsRefused(t *testing.T) {
	_, addr := start(t, testConfig("http://127.0.0.1:1"))
	for _, line := range []string{"X-Forwarded-For: " + readerAddr, "x-forwarded-for:", "Forwarded: for=10.0.0.1"} {
		got := ask(t, readerAddr, addr, "PUT", "/latest/api/token", tokenTTLHeader+": 60", line)
		if got.status != http.StatusForbidden || got.body != string(errorPage(http.StatusForbidden)) {
			t.Errorf("%s: %+v", line, got)
		}
		// Naming the header in Connection does not take it away.
		got = ask(t, readerAddr, addr, "PUT", "/latest/api/token", tokenTTLHeader+": 60", line, "Connection: X-Forwarded-For, Forwarded")
		if got.status != http.StatusForbidden {
			t.Errorf("%s, with Connection: status %d", line, got.status)
		}
		got = ask(t, readerAddr, addr, "GET", listPath, tokenHeader+": "+fetchToken(t, readerAddr, addr), line)
		if got.status != http.StatusForbidden {
			t.Errorf("%s, with a token: status %d", line, got.status)
		}
	}
}

func TestADatedVersionHasNoToken(t *testing.T) {
	_, addr := start(t, testConfig("http://127.0.0.1:1"))
	for _, version := range []string{"1.0", "2021-03-23", "LATEST", "x"} {
		if got := ask(t, readerAddr, addr, "PUT", "/"+version+"/api/token", tokenTTLHeader+": 60"); got.status != http.StatusForbidden {
			t.Errorf("%s: status %d", version, got.status)
		}
	}
}

func TestATokenIsGoodForItsPodOnly(t *testing.T) {
	rec := newRecorder(t, nil)
	for _, mode := range []TokenMode{TokensOptional, TokensRequired} {
		t.Run(string(mode), func(t *testing.T) {
			cfg := testConfig(rec.URL)
			cfg.TokenMode = mode
			p, addr := start(t, cfg)
			now := time.Now()
			reader := netip.MustParseAddr(readerAddr)
			without := http.StatusOK
			if mode == TokensRequired {
				without = http.StatusUnauthorized
			}
			otherKey := newTokens(bytes.Repeat([]byte{8}, tokenKeySize))
			good := fetchToken(t, readerAddr, addr)
			for _, tt := range []struct {
				name  string
				lines []string
				want  int
			}{
				{"none", nil, without},
				{"its own", []string{tokenHeader + ": " + good}, http.StatusOK},
				{"its own, named in Connection", []string{tokenHeader + ": " + good, "Connection: " + tokenHeader}, http.StatusOK},
				{"empty", []string{tokenHeader + ":"}, http.StatusUnauthorized},
				{"garbage", []string{tokenHeader + ": garbage"}, http.StatusUnauthorized},
				{"cut", []string{tokenHeader + ": " + good[:len(good)-1]}, http.StatusUnauthorized},
				{"longer", []string{tokenHeader + ": " + good + "A"}, http.StatusUnauthorized},
				{"twice", []string{tokenHeader + ": " + good, tokenHeader + ": " + good}, http.StatusUnauthorized},
				{"another pod's", []string{tokenHeader + ": " + fetchToken(t, writerAddr, addr)}, http.StatusUnauthorized},
				{"of the pod that had the address before", []string{tokenHeader + ": " + p.tokens.mint(reader, "uid-gone", 60, now)}, http.StatusUnauthorized},
				{"expired", []string{tokenHeader + ": " + p.tokens.mint(reader, "uid-reader", 60, now.Add(-time.Minute))}, http.StatusUnauthorized},
				{"of another node", []string{tokenHeader + ": " + otherKey.mint(reader, "uid-reader", 60, now)}, http.StatusUnauthorized},
				{"provisional", []string{tokenHeader + ": " + p.tokens.mint(reader, "", 21600, now.Add(-50*time.Second))}, http.StatusOK},
				{"provisional, a minute later", []string{tokenHeader + ": " + p.tokens.mint(reader, "", 21600, now.Add(-time.Minute))}, http.StatusUnauthorized},
			} {
				for _, path := range []string{listPath, rolePath + "reader", listPath + "-extended", "/latest/meta-data/iam/info", zonePath} {
					if got := ask(t, readerAddr, addr, "GET", path, tt.lines...); got.status != tt.want {
						t.Errorf("%s: %s: status %d, want %d", tt.name, path, got.status, tt.want)
					}
				}
			}
		})
	}
	for _, r := range rec.gets() {
		if r.Header.Get(tokenHeader) != "upstream-token" {
			t.Errorf("the real service was sent the token %q", r.Header.Get(tokenHeader))
		}
	}
}

// TestATokenCountsOnlyByItself: with a second one, some proxy or other has had a hand in the request. What Connection
// lists is no business of ours, who pass nothing on.
func TestATokenCountsOnlyByItself(t *testing.T) {
	cfg := testConfig("http://127.0.0.1:1")
	cfg.TokenMode = TokensRequired
	_, addr := start(t, cfg)
	line := tokenHeader + ": " + fetchToken(t, readerAddr, addr)
	for _, tt := range []struct {
		lines []string
		want  int
	}{
		{[]string{line}, http.StatusOK},
		{[]string{line, line}, http.StatusUnauthorized},
		{[]string{line, tokenHeader + ":"}, http.StatusUnauthorized},
		{[]string{line, "Connection: " + tokenHeader}, http.StatusOK},
		{[]string{line, "X-Forwarded-For: 10.0.0.1", "Connection: X-Forwarded-For"}, http.StatusForbidden},
		{[]string{line, "Forwarded: for=10.0.0.1"}, http.StatusForbidden},
	} {
		if got := ask(t, readerAddr, addr, "GET", listPath, tt.lines...); got.status != tt.want {
			t.Errorf("%q: status %d, want %d", tt.lines[1:], got.status, tt.want)
		}
	}
}

func TestTokensAreBoundAndExpire(t *testing.T) {
	tokens := newTokens(testKey())
	a, b := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	of := tokens.mint(a, "uid", 60, now)
	provisional := tokens.mint(a, "", 21600, now)
	short := tokens.mint(a, "", 1, now)
	for _, tt := range []struct {
		name, token string
		addr        netip.Addr
		uid         string
		at          time.Duration
		want        bool
	}{
		{"at once", of, a, "uid", 0, true},
		{"just before its end", of, a, "uid", 60*time.Second - 1, true},
		{"at its end", of, a, "uid", 60 * time.Second, false},
		{"by a clock that was set back a little", of, a, "uid", -30 * time.Second, true},
		{"by a clock that was set back a lot", of, a, "uid", -time.Hour, false},
		{"at another address", of, b, "uid", 0, false},
		{"of another pod", of, a, "uid2", 0, false},
		{"of no pod", of, a, "", 0, false},
		{"provisional, with a pod", provisional, a, "uid", 0, true},
		{"provisional, after 59 s", provisional, a, "uid", 59 * time.Second, true},
		{"provisional, after a minute", provisional, a, "uid", time.Minute, false},
		{"provisional, at another address", provisional, b, "uid", 0, false},
		{"provisional and short", short, a, "uid", time.Second, false},
	} {
		if got := tokens.valid(tt.token, tt.addr, tt.uid, now.Add(tt.at)); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
	for i := range of { // any change breaks it, the kind and the unused bits of the last character too
		for _, c := range "pa-_AB9z" {
			changed := of[:i] + string(c) + of[i+1:]
			if changed != of && tokens.valid(changed, a, "uid", now) {
				t.Errorf("valid with %q at %d", c, i)
			}
		}
	}
}

// TestAPodThatIsNotKnownYetIsNotDowngraded: an SDK whose token PUT fails or is slow goes on with IMDSv1.
func TestAPodThatIsNotKnownYetIsNotDowngraded(t *testing.T) {
	for _, v := range []mappings.Verdict{mappings.Pending, mappings.Ambiguous, mappings.Busy} {
		t.Run(v.String(), func(t *testing.T) {
			var asked atomic.Int32
			cfg := testConfig("http://127.0.0.1:1")
			cfg.TokenMode = TokensRequired
			cfg.Decide = func(ctx context.Context, _ netip.Addr, _ int) *mappings.Decision {
				if asked.Add(1) > 1 {
					return allowedDecision("reader")
				}
				// botocore waits for a second.
				if deadline, ok := ctx.Deadline(); !ok || time.Until(deadline) >= time.Second {
					t.Errorf("the token PUT is held until %v", deadline)
				}
				return &mappings.Decision{Verdict: v}
			}
			_, addr := start(t, cfg)
			got := ask(t, readerAddr, addr, "PUT", "/latest/api/token", tokenTTLHeader+": 300")
			if got.status != http.StatusOK || got.header.Get(tokenTTLHeader) != "300" {
				t.Fatalf("%+v", got)
			}
			if got := ask(t, readerAddr, addr, "GET", listPath, tokenHeader+": "+got.body); got.status != http.StatusOK || got.body != "reader" {
				t.Errorf("%+v", got)
			}
		})
	}
}

func TestWhoIsNoPodGetsNoToken(t *testing.T) {
	for _, tt := range []struct {
		name     string
		decision *mappings.Decision
		want     int
	}{
		{"not a pod", &mappings.Decision{Verdict: mappings.NotAPod}, http.StatusForbidden},
		{"undecided", verdict(mappings.Undecided), http.StatusServiceUnavailable},
		{"a verdict of tomorrow", verdict(99), http.StatusServiceUnavailable},
		{"no decision", nil, http.StatusServiceUnavailable},
		{"allowed, but no pod", &mappings.Decision{Verdict: mappings.Allowed}, http.StatusServiceUnavailable},
		{"a pod without a role", verdict(mappings.NoRole), http.StatusOK},
		{"a pod with a forbidden role", verdict(mappings.Forbidden), http.StatusOK},
		{"a pod with a malformed role", verdict(mappings.Malformed), http.StatusOK},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cfg := testConfig("http://127.0.0.1:1")
			cfg.Decide = func(context.Context, netip.Addr, int) *mappings.Decision { return tt.decision }
			_, addr := start(t, cfg)
			if got := ask(t, readerAddr, addr, "PUT", "/latest/api/token", tokenTTLHeader+": 60"); got.status != tt.want {
				t.Errorf("status %d, want %d", got.status, tt.want)
			}
		})
	}
}

func TestTheAnswerWithATokenHasTheHopLimit(t *testing.T) {
	for _, tt := range []struct {
		listen, from, to string
		level, option    int
	}{
		{"127.0.0.1:0", readerAddr, "127.0.0.1", syscall.IPPROTO_IP, syscall.IP_TTL},
		{"[::]:0", readerAddr, "127.0.0.1", syscall.IPPROTO_IP, syscall.IP_TTL}, // IPv4 on a socket for both
		{"[::1]:0", "::1", "::1", syscall.IPPROTO_IPV6, syscall.IPV6_UNICAST_HOPS},
	} {
		ln, err := new(net.ListenConfig).Listen(t.Context(), "tcp", tt.listen)
		if err != nil {
			t.Logf("not tried: %v", err)
			continue
		}
		cfg := testConfig("http://127.0.0.1:1")
		cfg.TokenHopLimit = 2
		cfg.Decide = func(context.Context, netip.Addr, int) *mappings.Decision { return allowedDecision("reader") }
		accepted := make(chan net.Conn, 1)
		run(t, cfg, acceptedListener{ln, accepted})
		_, port, _ := net.SplitHostPort(ln.Addr().String())
		c := dial(t, tt.from, net.JoinHostPort(tt.to, port))
		server := <-accepted
		c.send(request("GET", listPath))
		_ = c.receive("GET")
		if got := hopLimit(t, server, tt.level, tt.option); got == 2 {
			t.Errorf("%s: an answer without a token has the hop limit", tt.listen)
		}
		c.send(request("PUT", "/latest/api/token", tokenTTLHeader+": 60"))
		if got := c.receive("PUT"); got.status != http.StatusOK {
			t.Errorf("%s: status %d", tt.listen, got.status)
		}
		if got := hopLimit(t, server, tt.level, tt.option); got != 2 {
			t.Errorf("%s: the hop limit is %d", tt.listen, got)
		}
	}
}

// acceptedListener shows what it accepts.
type acceptedListener struct {
	net.Listener
	accepted chan<- net.Conn
}

func (l acceptedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil {
		l.accepted <- c
	}
	return c, err
}

func hopLimit(t *testing.T, c net.Conn, level, option int) (limit int) {
	t.Helper()
	raw, err := c.(syscall.Conn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var failed error
	if err := raw.Control(func(fd uintptr) { limit, failed = syscall.GetsockoptInt(int(fd), level, option) }); err != nil || failed != nil {
		t.Fatal(err, failed)
	}
	return limit
}
