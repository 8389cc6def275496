package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"pod2role/sandbox/kubeapi"
)

const (
	outageLength  = 20 * time.Second
	outagePods    = 40
	outageMaxWait = 60 * time.Second // for the daemon to find the API server again
)

// outage is the API server's: gone, and back without the history that the daemon would go on from.
func outage(ctx context.Context, b *bench) ([]table, error) {
	t := table{
		columns: []string{"pods", "asked", "in vain", "median", "p99", "slowest"},
		note: fmt.Sprintf("%d pods each ask three times a second as botocore does (token, name, credentials, a new connection each time) while the API "+
			"server refuses connections for %s. It comes back with its history compacted, so that the daemon has to list anew. During the outage two pods "+
			"are created and given an address.", outagePods, outageLength),
	}
	recovery := table{columns: []string{"pod created during the outage", "its role", "served after the API server was back", "attempts in vain before"}}
	err := b.inWorld(ctx, func(ctx context.Context, w *world) error {
		known, err := w.working(outagePods, "known")
		if err != nil {
			return err
		}
		if err := w.start(ctx); err != nil {
			return err
		}
		asking, stop := context.WithCancel(ctx)
		defer stop()
		answers := make([][]fetch, len(known))
		var running sync.WaitGroup
		for i, p := range known {
			running.Go(func() { answers[i] = p.keepAsking(asking) })
		}
		wait(ctx, 2*time.Second)

		down := time.Now()
		w.api.SetOutage(kubeapi.Refuse)
		wait(ctx, 5*time.Second)
		var created []*pod
		for _, role := range []string{"known", "never-seen"} {
			p := w.pod("work", role)
			if err := p.run(); err != nil { // the API server's database knows of it, and nobody can ask
				return err
			}
			created = append(created, p)
		}
		newcomers := make([]newcomer, len(created))
		var joining sync.WaitGroup
		limited, cancel := context.WithTimeout(ctx, outageLength+outageMaxWait)
		defer cancel()
		for i, p := range created {
			joining.Go(func() { newcomers[i] = p.untilServed(limited) })
		}
		wait(ctx, time.Until(down.Add(outageLength)))
		w.api.Compact()
		up := time.Now()
		w.api.SetOutage(kubeapi.Up)
		joining.Wait()
		wait(ctx, time.Second)
		end := time.Now()
		stop()
		running.Wait()
		if err := ctx.Err(); err != nil {
			return err
		}

		all := slices.Concat(answers...)
		t.add(periodRow("known, before", all, time.Time{}, down)...)
		t.add(periodRow("known, while it is away", all, down, up)...)
		t.add(periodRow("known, after", all, up, end)...)
		for i, n := range newcomers {
			took := "not within " + outageMaxWait.String()
			if !n.served.IsZero() {
				took = seconds(n.served.Sub(up))
			}
			recovery.add(created[i].name, created[i].role, took, fmt.Sprint(n.vain))
		}
		return nil
	})
	return []table{t, recovery}, err
}

// keepAsking asks three times a second until ctx ends.
func (p *pod) keepAsking(ctx context.Context) []fetch {
	var all []fetch
	if !wait(ctx, between(0, 333)) { // not all at once
		return nil
	}
	for {
		f := botocore().fetch(ctx, p)
		if ctx.Err() != nil {
			return all
		}
		all = append(all, f)
		if !wait(ctx, 333*time.Millisecond) {
			return all
		}
	}
}

// newcomer is a pod that is not known yet.
type newcomer struct {
	served time.Time // zero: not
	vain   int       // attempts in vain
}

// untilServed asks until there are credentials, half a second after each attempt in vain.
func (p *pod) untilServed(ctx context.Context) newcomer {
	var n newcomer
	for {
		if f := botocore().fetch(ctx, p); f.err == nil {
			n.served = time.Now()
			return n
		}
		n.vain++
		if !wait(ctx, 500*time.Millisecond) {
			return n
		}
	}
}

// periodRow sums up what was asked between two moments.
func periodRow(name string, all []fetch, from, to time.Time) []string {
	vain := 0
	var took []time.Duration
	for _, f := range all {
		if f.begun.Before(from) || !f.begun.Before(to) {
			continue
		}
		took = append(took, f.took)
		if f.err != nil || f.other {
			vain++
		}
	}
	return []string{name, fmt.Sprint(len(took)), fmt.Sprint(vain), millis(quantile(took, .5)), millis(quantile(took, .99)), millis(quantile(took, 1))}
}
