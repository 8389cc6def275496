package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	sandbox "pod2role/sandbox/sts"
)

// rush is many pods that start at the same time.
type rush struct {
	name    string
	client  client
	roles   int
	records bool
	// lead is how long before its process a pod was scheduled and how long before it got its address: what a kubelet
	// takes to set it up. Without it all happens in the same moment, which no kubelet does.
	lead bool
	// late says how long after its process has started the kubelet tells the API server of a pod's address; nil: at once.
	late func() time.Duration
	lag  time.Duration // of the watch
	pods int
	args []string // of the daemon's
	// limit is how many calls a second STS takes, 0 any number.
	limit float64
	// begins says when after it was scheduled the n-th process starts; nil: as lead says.
	begins func(n int) time.Duration
	again  time.Duration // a program without credentials asks again after this; 0: never
}

// outcomes are what the pods of a rush got.
type outcomes struct {
	begin   time.Time
	asked   [][]fetch       // by each pod, in their order: at least one
	served  []time.Duration // since the rush began, when each pod had credentials; 0: never
	calls   map[string]int  // :: role -> AssumeRole calls
	refused int             // calls that STS refused
}

// rush lets pods start in a world of their own.
func (b *bench) rush(ctx context.Context, r rush) (outcomes, error) {
	var got outcomes
	err := b.inWorld(ctx, func(ctx context.Context, w *world) error {
		w.sts.SetFaults(sandbox.Faults{Throttle: r.limit, LatencyOf: func(sandbox.Call) time.Duration { return between(100, 400) }})
		w.api.SetWatchLag(r.lag)
		if err := w.namespace("rush"); err != nil {
			return err
		}
		args := slices.Clone(r.args)
		if !r.records {
			args = append(args, withoutRecords)
		}
		if err := w.start(ctx, args...); err != nil {
			return err
		}
		begin := time.Now()
		var pods []*pod
		for i := range r.pods {
			pods = append(pods, w.pod("rush", fmt.Sprintf("role-%d", i%r.roles)))
			if r.lead || r.begins != nil {
				if err := pods[i].schedule(); err != nil {
					return err
				}
			}
		}
		got = outcomes{
			begin: begin, asked: make([][]fetch, len(pods)), served: make([]time.Duration, len(pods)), calls: map[string]int{},
		}
		problems := make([]error, len(pods))
		var running sync.WaitGroup
		for i, p := range pods {
			running.Go(func() { problems[i] = r.live(ctx, p, i, begin, &got) })
		}
		running.Wait()
		for _, call := range w.sts.Calls() {
			if call.Action != "AssumeRole" {
				continue
			}
			got.calls[call.RoleARN]++
			if call.Outcome != "Success" {
				got.refused++
			}
		}
		return errors.Join(append(problems, ctx.Err())...)
	})
	return got, err
}

// live is the n-th pod's life, up to its credentials.
func (r rush) live(ctx context.Context, p *pod, n int, begin time.Time, got *outcomes) error {
	given, started := time.Duration(0), time.Duration(0) // since begin
	switch {
	case r.begins != nil:
		started = r.begins(n)
		given = started / 2
	case r.lead:
		given = between(1000, 2000)
		started = given + between(300, 1000)
	}
	told := started
	if r.late != nil {
		told += r.late()
	}
	until := func(at time.Duration) { wait(ctx, at-time.Since(begin)) }

	until(given)
	if !r.lead && r.begins == nil {
		if err := p.schedule(); err != nil {
			return err
		}
	}
	if r.records {
		if err := p.give(); err != nil {
			return err
		}
	}
	until(started)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for again := true; again; {
			f := r.client.fetch(ctx, p)
			got.asked[n] = append(got.asked[n], f)
			if f.err == nil {
				got.served[n] = time.Since(begin)
			}
			again = f.err != nil && r.again > 0 && wait(ctx, r.again)
		}
	}()
	until(told)
	err := p.tell()
	<-ended
	return err
}

// between is a random number of milliseconds.
func between(least, most int) time.Duration {
	return time.Duration(least+rand.IntN(most-least+1)) * time.Millisecond
}

// failed says how many pods had no credentials from their first asking, and how many had another role's.
func (o outcomes) failed() string {
	failed := 0
	for _, asked := range o.asked {
		if asked[0].err != nil {
			failed++
		}
	}
	s := fmt.Sprintf("%d of %d", failed, len(o.asked))
	for _, f := range slices.Concat(o.asked...) {
		if f.other {
			return s + ", and ANOTHER ROLE'S CREDENTIALS"
		}
	}
	return s
}

// failedSince says how many of the askings since a moment failed.
func (o outcomes) failedSince(moment func(pod int) time.Time) string {
	failed, since := 0, 0
	for i, asked := range o.asked {
		for _, f := range asked {
			if f.begun.Before(moment(i)) {
				continue
			}
			since++
			if f.err != nil {
				failed++
			}
		}
	}
	return fmt.Sprintf("%d of %d", failed, since)
}

// vain is how many requests brought nothing.
func (o outcomes) vain() string {
	vain := 0
	for _, asked := range o.asked {
		vain += asked[0].tries
	}
	return fmt.Sprint(vain)
}

// callsMade says how many AssumeRole calls there were, and for one role at most.
func (o outcomes) callsMade() string {
	total, most := 0, 0
	for _, n := range o.calls {
		total, most = total+n, max(most, n)
	}
	return fmt.Sprintf("%d (%d for a role at most)", total, most)
}

// tookAt is a quantile of how long the first asking took, successful or not.
func (o outcomes) tookAt(q float64) time.Duration {
	var all []time.Duration
	for _, asked := range o.asked {
		all = append(all, asked[0].took)
	}
	return quantile(all, q)
}

// reasons logs why pods had no credentials, the most frequent reason first.
func (b *bench) reasons(o outcomes) {
	counts := map[string]int{} // :: reason -> pods
	for _, asked := range o.asked {
		if err := asked[0].err; err != nil {
			counts[err.Error()]++
		}
	}
	var all []string
	for reason := range counts {
		all = append(all, reason)
	}
	slices.SortFunc(all, func(x, y string) int { return cmp.Or(counts[y]-counts[x], cmp.Compare(x, y)) })
	for _, reason := range all[:min(len(all), 5)] {
		fmt.Fprintf(b.log, "  %d pods without credentials: %s\n", counts[reason], reason)
	}
}
