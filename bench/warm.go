package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"
)

const (
	listPath  = "/latest/meta-data/iam/security-credentials/"
	zonePath  = "/latest/meta-data/placement/availability-zone"
	tokenPath = "/latest/api/token"

	tokenHeader    = "X-aws-ec2-metadata-token"
	tokenTTLHeader = "X-aws-ec2-metadata-token-ttl-seconds"
)

// Costs are measured with a few connections at a time, so that neither server can batch much. The pods take turns: there
// are only so many ports for connections from one address.
const (
	costStreams = 4
	costPods    = 10 * costStreams
)

// warm measures what answers cost that the daemon has at hand.
func warm(ctx context.Context, b *bench) ([]table, error) {
	costs := table{
		columns: []string{"request", "connection", "daemon, CPU µs", "bare, CPU µs", "CPU ratio", "of the quietest rounds", "daemon, requests/s", "bare, requests/s"},
		note: fmt.Sprintf("Medians of %d rounds of %s each; ratios are of neighbouring rounds, with the quartiles in brackets. Of the quietest rounds: the ratio of "+
			"the tenth of rounds that cost least, each side's own; what else the machine does only ever adds. "+
			"The client shares the CPUs, so that the rates are no more than a lower bound.", b.rounds, b.round),
	}
	err := b.inWorld(ctx, func(ctx context.Context, w *world) error {
		pods, err := w.working(costPods, "warm")
		if err != nil {
			return err
		}
		if err := w.start(ctx); err != nil {
			return err
		}
		subjects, err := w.subjects(ctx, pods)
		if err != nil {
			return err
		}
		var answers []answer
		for _, s := range subjects {
			answers = append(answers, s.answer)
		}
		reference, addr, err := startReference(ctx, b.log, answers)
		if err != nil {
			return err
		}
		defer reference.end()
		for _, s := range subjects {
			for _, keepAlive := range []bool{true, false} {
				row, err := b.compare(ctx, w, reference, addr, s, keepAlive)
				if err != nil {
					return err
				}
				costs.add(row...)
				if err := w.profileInto(ctx, s, keepAlive); err != nil {
					return err
				}
			}
		}
		return nil
	})
	return []table{costs}, err
}

// working makes pods that share a role and have been running for a while when the daemon starts.
func (w *world) working(n int, role string) ([]*pod, error) {
	if err := w.namespace("work"); err != nil {
		return nil, err
	}
	var pods []*pod
	for range n {
		p := w.pod("work", role)
		if err := p.run(); err != nil {
			return nil, err
		}
		pods = append(pods, p)
	}
	return pods, nil
}

// subject is a request whose cost is measured.
type subject struct {
	name     string
	answer   answer
	requests [][]byte // one for each pod: they differ in the token
	pods     []*pod
}

// subjects gets a token for every pod and learns what the daemon answers.
func (w *world) subjects(ctx context.Context, pods []*pod) ([]subject, error) {
	all := []subject{
		{name: "credentials of the role", answer: answer{Path: listPath + pods[0].role}},
		{name: "name of the role", answer: answer{Path: listPath}},
		{name: "cached pass-through", answer: answer{Path: zonePath}},
	}
	for _, p := range pods {
		_, token, err := p.ask(ctx, http.MethodPut, tokenPath, tokenTTLHeader, "21600")
		if err != nil {
			return nil, err
		}
		for i := range all {
			s := &all[i]
			header, body, err := p.ask(ctx, http.MethodGet, s.answer.Path, tokenHeader, token)
			if err != nil {
				return nil, err
			}
			s.answer.Body, s.answer.Header = body, map[string]string{}
			for name := range header {
				if name != "Date" { // net/http's own
					s.answer.Header[name] = header.Get(name)
				}
			}
			s.pods = append(s.pods, p)
			s.requests = append(s.requests, []byte("GET "+s.answer.Path+" HTTP/1.1\r\nHost: 169.254.169.254\r\nUser-Agent: Boto3/1.43.11\r\n"+
				"Accept-Encoding: identity\r\n"+tokenHeader+": "+token+"\r\n\r\n"))
		}
	}
	return all, nil
}

// ask sends one request from a pod; anything but a 200 is an error.
func (p *pod) ask(ctx context.Context, method, path string, header ...string) (http.Header, string, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, "http://"+p.w.app+path, nil)
	if err != nil {
		return nil, "", err
	}
	for i := 0; i+1 < len(header); i += 2 {
		request.Header.Set(header[i], header[i+1])
	}
	transport := &http.Transport{DialContext: dialer(p.addr).DialContext, DisableKeepAlives: true}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return nil, "", err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s %s answers %d", method, path, response.StatusCode)
	}
	response.Header.Del("Connection") // of this client's wish
	return response.Header, string(body), err
}

// compare measures a subject and the reference in turns and returns the row for the table.
func (b *bench) compare(ctx context.Context, w *world, reference *process, addr string, s subject, keepAlive bool) ([]string, error) {
	name := "new for each"
	if keepAlive {
		name = "kept open"
	}
	var cpu, rate [2][]float64 // of the daemon and of the reference
	for round := range b.rounds + 1 {
		var used [2]time.Duration
		var answers [2]int
		for i, side := range []struct {
			p  *process
			to string
		}{{w.daemon, w.app}, {reference, addr}} {
			var err error
			if used[i], answers[i], err = measure(ctx, side.p, s.streams(side.to, keepAlive, round), b.round); err != nil {
				return nil, fmt.Errorf("%s, connection %s: %w", s.name, name, err)
			}
		}
		if round == 0 || answers[0] == 0 || answers[1] == 0 {
			continue // they are not warm yet, or something else had the machine to itself
		}
		for i := range 2 {
			cpu[i] = append(cpu[i], float64(used[i].Nanoseconds())/1e3/float64(answers[i]))
			rate[i] = append(rate[i], float64(answers[i])/b.round.Seconds())
		}
	}
	if 2*len(cpu[0]) < b.rounds {
		return nil, fmt.Errorf("%s, connection %s: the machine is too busy: only %d of %d rounds had answers", s.name, name, len(cpu[0]), b.rounds)
	}
	return []string{
		s.name, name,
		fmt.Sprintf("%.1f", quantile(cpu[0], .5)), fmt.Sprintf("%.1f", quantile(cpu[1], .5)), spread(ratios(cpu[0], cpu[1])),
		fmt.Sprintf("%.2f", quantile(cpu[0], .1)/quantile(cpu[1], .1)), median(rate[0]), median(rate[1]),
	}, nil
}

// streams are those of a round.
func (s subject) streams(to string, keepAlive bool, round int) []stream {
	var all []stream
	for i := range costStreams {
		i = (costStreams*round + i) % len(s.pods)
		all = append(all, stream{source: s.pods[i].addr, to: to, request: s.requests[i], keepAlive: keepAlive})
	}
	return all
}

// measure drives streams for a round and returns the CPU time that p used for them.
func measure(ctx context.Context, p *process, streams []stream, round time.Duration) (used time.Duration, answers int, err error) {
	before, err := p.cpu()
	if err != nil {
		return 0, 0, err
	}
	t := drive(ctx, round, streams)
	after, err := p.cpu()
	switch {
	case err != nil:
		return 0, 0, err
	case t.failures > 0:
		return 0, 0, fmt.Errorf("%d of %d requests failed: %w", t.failures, t.failures+t.answers, t.first)
	}
	return after - before, t.answers, nil
}

// profileInto writes a CPU profile of the daemon at work, if profiles are wanted.
func (w *world) profileInto(ctx context.Context, s subject, keepAlive bool) error {
	if w.bench.profile == "" {
		return nil
	}
	const length = 5 * time.Second
	ctx, cancel := context.WithCancel(ctx)
	driven := make(chan traffic, 1)
	go func() { driven <- drive(ctx, time.Minute, s.streams(w.app, keepAlive, 0)) }()
	profile, err := get(ctx, fmt.Sprintf("http://%s/debug/pprof/profile?seconds=%d", w.debug, int(length.Seconds())))
	cancel()
	<-driven
	if err != nil {
		return fmt.Errorf("profiling the daemon: %w", err)
	}
	name := fmt.Sprintf("%s-keepalive=%t.pprof", strings.ReplaceAll(s.name, " ", "-"), keepAlive)
	return os.WriteFile(filepath.Join(w.bench.profile, name), profile, 0o600)
}
