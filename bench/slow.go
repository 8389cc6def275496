package main

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"
)

const (
	slowConnections = 2000
	slowSources     = 10 // of these connections: an address may have 256
	slowWatch       = 35 * time.Second
	slowBaseline    = 2 * time.Second
	workingPods     = 20
)

// slow is what clients that never finish their requests can do to others.
func slow(ctx context.Context, b *bench) ([]table, error) {
	others := table{
		columns: []string{"the working pods' requests", "answered", "failed", "median", "p99", "slowest"},
		note: fmt.Sprintf("%d pods ask for their credentials every 10 ms, half of them with a new connection for each request. %d connections from %d other "+
			"addresses, half of them silent, the others sending one byte of a request each 100 ms.", workingPods, slowConnections, slowSources),
	}
	closed := table{columns: []string{"half-open connections", "opened", "closed by the daemon", "first", "last", "resident before", "at most", "at rest again"}}
	err := b.inWorld(ctx, func(ctx context.Context, w *world) error {
		pods, err := w.working(workingPods, "working")
		if err != nil {
			return err
		}
		var idlers []netip.Addr
		for range slowSources {
			p := w.pod("work", "slow")
			if err := p.run(); err != nil {
				return err
			}
			idlers = append(idlers, p.addr)
		}
		if err := w.start(ctx); err != nil {
			return err
		}
		subjects, err := w.subjects(ctx, pods)
		if err != nil {
			return err
		}
		streams := make([]stream, len(pods))
		for i, p := range pods {
			streams[i] = stream{source: p.addr, to: w.app, request: subjects[0].requests[i], keepAlive: i%2 == 0, pause: 10 * time.Millisecond}
		}
		row := func(name string, t traffic) {
			others.add(name, fmt.Sprint(t.answers), fmt.Sprint(t.failures), millis(quantile(t.took, .5)), millis(quantile(t.took, .99)), millis(quantile(t.took, 1)))
		}
		row("before", drive(ctx, slowBaseline, streams))
		before, err := w.daemon.resident()
		if err != nil {
			return err
		}

		// The working pods go on for as long as there are half-open connections, and no longer.
		working, stop := context.WithCancel(ctx)
		defer stop()
		meanwhile := make(chan traffic, 1)
		go func() { meanwhile <- drive(working, 2*slowWatch, streams) }()
		watched, most := make(chan struct{}), uint64(0)
		go func() {
			defer close(watched)
			for wait(working, 100*time.Millisecond) {
				if r, err := w.daemon.resident(); err == nil {
					most = max(most, r.total)
				}
			}
		}()
		lives, err := idle(ctx, idlers, w.app)
		stop()
		row("meanwhile", <-meanwhile)
		<-watched
		if err != nil {
			return err
		}
		row("after", drive(ctx, slowBaseline, streams))
		if err := w.settle(ctx); err != nil {
			return err
		}
		after, err := w.daemon.resident()
		if err != nil {
			return err
		}
		for i, name := range []string{"silent", "a byte each 100 ms"} {
			var ended []time.Duration
			for _, life := range lives[i] {
				if life < slowWatch {
					ended = append(ended, life)
				}
			}
			closed.add(name, fmt.Sprint(len(lives[i])), fmt.Sprint(len(ended)), seconds(quantile(ended, 0)), seconds(quantile(ended, 1)),
				mebibytes(before.total), mebibytes(most), mebibytes(after.total))
		}
		return nil
	})
	return []table{closed, others}, err
}

// idle opens half-open connections and returns how long each lived: the silent ones, and those that send byte after
// byte. What lives for slowWatch is left alone then.
func idle(ctx context.Context, from []netip.Addr, to string) ([2][]time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, slowWatch)
	defer cancel()
	var lives [2][]time.Duration
	var mu sync.Mutex
	var problem error
	var running sync.WaitGroup
	places := make(chan struct{}, 50) // connections are opened that many at a time
	for i := range slowConnections {
		places <- struct{}{}
		running.Go(func() {
			conn, err := dialer(from[i%len(from)]).DialContext(ctx, "tcp", to)
			<-places
			var life time.Duration
			if err == nil {
				life = live(ctx, conn, i%2 == 1)
			}
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				problem = fmt.Errorf("opening connection %d: %w", i, err)
				return
			}
			lives[i%2] = append(lives[i%2], life)
		})
	}
	running.Wait()
	if err := context.Cause(ctx); err != nil && problem == nil && !slices.ContainsFunc(slices.Concat(lives[:]...), func(d time.Duration) bool { return d >= slowWatch }) {
		problem = err
	}
	return lives, problem
}

// live keeps a connection until the other side closes it, and returns how long that took.
func live(ctx context.Context, conn net.Conn, talk bool) time.Duration {
	begin := time.Now()
	defer func() { _ = conn.Close() }()
	deadline := begin.Add(slowWatch)
	_ = conn.SetDeadline(deadline) // a connection has deadlines
	if talk {
		go func() {
			const request = "GET /latest/meta-data/iam/security-credentials/ HTTP/1.1\r\nHost: 169.254.169.254\r\nUser-Agent: a slow client that never comes to its end"
			for i := range len(request) {
				if _, err := conn.Write([]byte{request[i]}); err != nil || !wait(ctx, 100*time.Millisecond) {
					return
				}
			}
		}()
	}
	for buffer := make([]byte, 1024); ; {
		if _, err := conn.Read(buffer); err != nil {
			return time.Since(begin)
		}
	}
}
