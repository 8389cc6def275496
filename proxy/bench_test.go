package proxy

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"syscall"
	"testing"
	"time"

	"pod2role/credentials"
	"pod2role/mappings"
)

// BenchmarkWarmRole compares an answer from the cache with a bare net/http handler that writes the same bytes. The
// figure that counts is cpu-ns/op, user and system time of the process, client included in both.
func BenchmarkWarmRole(b *testing.B) {
	session := testSession("reader")
	body := document(session)
	decision := allowedDecision("reader")
	p, err := New(Config{
		Decide:      func(context.Context, netip.Addr, int) *mappings.Decision { return decision },
		Credentials: func(context.Context, credentials.Key) (*credentials.Session, error) { return session, nil },
		MetadataURL: "http://127.0.0.1:1", TokenKey: testKey(), CatchUp: func() {},
		Moved: func(netip.Addr, time.Time) bool { return false },
	})
	if err != nil {
		b.Fatal(err)
	}
	token := p.tokens.mint(netip.MustParseAddr("127.0.0.1"), decision.Pod.UID, maxTokenTTL, time.Now())
	request := "GET /latest/meta-data/iam/security-credentials/reader HTTP/1.1\r\nHost: 169.254.169.254\r\n" +
		"User-Agent: Boto3/1.43.11\r\nAccept-Encoding: identity\r\n" + tokenHeader + ": " + token + "\r\n\r\n"

	b.Run("proxy", func(b *testing.B) {
		ln := listenLoopback(b)
		ctx, stop := context.WithCancel(b.Context())
		ended := make(chan error, 1)
		go func() { ended <- p.Run(ctx, ln) }()
		exchangeLoop(b, ln.Addr().String(), request, len(body))
		stop()
		if err := <-ended; err != nil {
			b.Error(err)
		}
	})
	b.Run("bare", func(b *testing.B) {
		ln := listenLoopback(b)
		server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Server", "EC2ws")
			w.Header().Set("Content-Type", plainText)
			w.Header().Set("Content-Length", strconv.Itoa(len(body)))
			_, _ = w.Write(body)
		})}
		go func() { _ = server.Serve(ln) }()
		exchangeLoop(b, ln.Addr().String(), request, len(body))
		_ = server.Close()
	})
}

// exchangeLoop sends the same request again and again on one connection.
func exchangeLoop(b *testing.B, addr, request string, size int) {
	b.Helper()
	c, err := new(net.Dialer).DialContext(b.Context(), "tcp", addr)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	in := bufio.NewReader(c)
	b.ReportAllocs()
	before := cpuTime()
	for b.Loop() {
		if _, err := io.WriteString(c, request); err != nil {
			b.Fatal(err)
		}
		for line := ""; line != "\r\n"; {
			if line, err = in.ReadString('\n'); err != nil {
				b.Fatal(err)
			}
		}
		if _, err := in.Discard(size); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(cpuTime()-before)/float64(b.N), "cpu-ns/op")
}

func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(fmt.Sprintf("reading the process's CPU time: %v", err))
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
