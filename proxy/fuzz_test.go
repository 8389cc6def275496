package proxy

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"
)

// FuzzToken: nothing but what was minted is valid.
func FuzzToken(f *testing.F) {
	tokens := newTokens(testKey())
	addr := netip.MustParseAddr(readerAddr)
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	good, provisional := tokens.mint(addr, "uid", 60, now), tokens.mint(addr, "", 60, now)
	f.Add(good)
	f.Add(provisional)
	f.Add(good + "=")
	f.Add(strings.ToUpper(good))
	f.Add("")
	f.Fuzz(func(t *testing.T, token string) {
		if got, want := tokens.valid(token, addr, "uid", now), token == good || token == provisional; got != want {
			t.Errorf("%q: %v", token, got)
		}
	})
}

// FuzzTokenTTL: only the integers from 1 to 21600 are TTLs.
func FuzzTokenTTL(f *testing.F) {
	for _, seed := range []string{"1", "21600", "0", "21601", "-1", "+1", "1.0", "0x1", "", " 1", "١"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, value string) {
		ttl, ok := tokenTTL([]string{value})
		if ok && (ttl < 1 || ttl > maxTokenTTL || strings.Trim(value, "0123456789") != "") {
			t.Errorf("%q is %d", value, ttl)
		}
	})
}

// FuzzHeaderLine: no header line makes the reader another pod, or sends a request to the real service.
func FuzzHeaderLine(f *testing.F) {
	for _, seed := range []string{
		"X-Forwarded-For: " + writerAddr, "Connection: X-Aws-Ec2-Metadata-Token", tokenHeader + ": x", "Transfer-Encoding: chunked",
		"Content-Length: 3", "Expect: 100-continue", "Host: a", " folded", "Upgrade: h2c", "X-Original-URL: /latest/user-data", "a:b\r\n\r\nGET / HTTP/1.1",
	} {
		f.Add(seed)
	}
	rec := newRecorder(f, nil)
	_, addr := start(f, testConfig(rec.URL))
	f.Fuzz(func(t *testing.T, line string) {
		if strings.Contains(line, "\n") {
			t.Skip("it is more than a line")
		}
		conversation(t, addr, request("GET", rolePath+"reader", line, "Connection: close"))
		if gets := rec.gets(); len(gets) > 0 {
			t.Errorf("the real service was asked for %q", gets[0].RequestURI)
		}
	})
}

// FuzzSocket: whatever bytes a pod sends, it gets HTTP back and no secret but its own, and the real service is asked
// for nothing that is one.
func FuzzSocket(f *testing.F) {
	for _, target := range secretTargets()[:12] {
		f.Add([]byte(request("GET", target)))
	}
	f.Add([]byte(request("PUT", "/latest/api/token", tokenTTLHeader+": 60")))
	f.Add([]byte(request("GET", zonePath) + request("GET", rolePath+"writer")))
	f.Add([]byte("GET http://a/latest/meta-data/mac HTTP/1.0\r\n\r\n"))
	f.Add([]byte(request("GET", listPath, "Transfer-Encoding: chunked") + "3\r\nGET\r\n0\r\n\r\n"))
	f.Add([]byte{0x16, 0x03, 0x01, 0x00})
	rec := newRecorder(f, nil)
	_, addr := start(f, testConfig(rec.URL))
	f.Fuzz(func(t *testing.T, raw []byte) {
		conversation(t, addr, string(raw))
		for _, r := range rec.gets() {
			if got := classify("GET", r.RequestURI); got.route != routePassThrough || got.path != r.RequestURI {
				t.Errorf("the real service was asked for %q", r.RequestURI)
			}
		}
	})
}

// conversation sends raw from the reader's address, and no more, and looks at all that comes back.
func conversation(t *testing.T, addr, raw string) {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(readerAddr)}}
	c, err := d.DialContext(context.WithoutCancel(t.Context()), "tcp", addr)
	if err != nil {
		t.Skip(err)
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	if _, err := io.WriteString(c, raw); err == nil {
		_ = c.(*net.TCPConn).CloseWrite()
	}
	all, _ := io.ReadAll(c) // a reset is an answer too
	if bytes.Contains(all, []byte("ASIAWRITER")) || bytes.Contains(all, []byte("\nLocation:")) {
		t.Errorf("answered %q", all)
	}
	if len(all) == 0 {
		return
	}
	resp, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(all)), nil)
	if err != nil {
		t.Errorf("answered %q: %v", all, err)
		return
	}
	_ = resp.Body.Close()
	if resp.StatusCode >= 300 && resp.StatusCode < 400 {
		t.Errorf("answered %q", all)
	}
}
