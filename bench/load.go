package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"time"
)

// stream sends the same request again and again from one address.
type stream struct {
	source    netip.Addr
	to        string // host:port
	request   []byte
	keepAlive bool          // or else a connection for each request
	pause     time.Duration // between requests
}

// traffic is what streams got.
type traffic struct {
	answers  int // with status 200
	failures int // anything else
	first    error
	took     []time.Duration // of each answer, from connecting if there was a connection for each
}

func (t *traffic) add(other traffic) {
	t.answers += other.answers
	t.failures += other.failures
	if t.first == nil {
		t.first = other.first
	}
	t.took = append(t.took, other.took...)
}

// drive runs all streams at once for as long as d.
func drive(ctx context.Context, d time.Duration, streams []stream) traffic {
	ctx, cancel := context.WithCancel(ctx) // not WithTimeout: a dialer would find the time over before ctx says so
	defer cancel()
	defer time.AfterFunc(d, cancel).Stop()
	results := make([]traffic, len(streams))
	var running sync.WaitGroup
	for i, s := range streams {
		running.Go(func() { results[i] = s.run(ctx) })
	}
	running.Wait()
	var all traffic
	for _, r := range results {
		all.add(r)
	}
	return all
}

// run sends until ctx ends. A request that is under way then counts for nothing.
func (s stream) run(ctx context.Context) traffic {
	var t traffic
	var c *connection
	for ctx.Err() == nil {
		begin := time.Now()
		var err error
		if c == nil {
			c, err = dial(ctx, s.source, s.to)
		}
		if err == nil {
			err = c.exchange(s.request)
		}
		switch {
		case err == nil:
			t.answers++
			t.took = append(t.took, time.Since(begin))
		case ctx.Err() == nil:
			t.failures++
			if t.first == nil {
				t.first = err
			}
		}
		if c != nil && (err != nil || !s.keepAlive) {
			c.close()
			c = nil
		}
		if s.pause > 0 && !wait(ctx, s.pause) {
			break
		}
	}
	if c != nil {
		c.close()
	}
	return t
}

// connection is one to a server. It costs less than net/http's, for client and server share the machine.
type connection struct {
	conn  net.Conn
	in    *bufio.Reader
	leave func() bool
}

// dial connects from an address. The connection ends with ctx.
func dial(ctx context.Context, from netip.Addr, to string) (*connection, error) {
	conn, err := dialer(from).DialContext(ctx, "tcp", to)
	if err != nil {
		return nil, err
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // else each connection is remembered for a minute, and soon there are too many for any rate
	}
	return &connection{conn: conn, in: bufio.NewReader(conn), leave: context.AfterFunc(ctx, func() { _ = conn.Close() })}, nil
}

// dialer connects from an address.
func dialer(from netip.Addr) *net.Dialer {
	return &net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(from, 0)), Control: portLater}
}

func (c *connection) close() {
	c.leave()
	_ = c.conn.Close()
}

// exchange sends a request and reads the answer, which must be a 200 with a Content-Length.
func (c *connection) exchange(request []byte) error {
	if _, err := c.conn.Write(request); err != nil {
		return err
	}
	size := -1
	for status := ""; ; {
		line, err := c.in.ReadSlice('\n')
		if err != nil {
			return err
		}
		line = bytes.TrimRight(line, "\r\n")
		if status == "" {
			if status = string(line); !bytes.HasPrefix(line, []byte("HTTP/1.1 200 ")) {
				return fmt.Errorf("the answer is %q", status)
			}
			continue
		}
		if value, ok := bytes.CutPrefix(line, []byte("Content-Length: ")); ok {
			if size, err = strconv.Atoi(string(value)); err != nil {
				return fmt.Errorf("the answer's length: %w", err)
			}
		}
		if len(line) > 0 {
			continue
		}
		if size < 0 {
			return fmt.Errorf("the answer %q has no length", status)
		}
		_, err = io.CopyN(io.Discard, c.in, int64(size))
		return err
	}
}
