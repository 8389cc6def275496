package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"
)

const (
	stormPods = 200
	watchLag  = 1500 * time.Millisecond
)

// storm is the rush with few roles.
func storm(ctx context.Context, b *bench) ([]table, error) {
	t := table{
		columns: []string{"pods' start", "pods", "CNI records", "client", "without credentials", "requests in vain", "AssumeRole calls", "median", "slowest"},
		note: fmt.Sprintf("5 roles; each change reaches the watch %s late; STS answers after 0.1 to 0.4 s. _As a kubelet starts them_: all are "+
			"scheduled at once, have an address 1 to 2 s later and run 0.3 to 1 s after that. _At once_: scheduled, given an address and running in the "+
			"same moment. _Late word_: as a kubelet starts them, but it tells the API server of the address only 0.5 to 1.5 s after the process runs. "+
			"_Late word, prompt watch_: 0.8 to 2.2 s after, and the watch shows it 50 ms later. "+
			"Without credentials: after all that the client's own attempts could do. Requests in vain: timed out or refused, though the client's next "+
			"attempt may have been right. Median and slowest: of the whole asking, successful or not.", watchLag),
	}
	for _, r := range []rush{
		{name: "as a kubelet starts them", lead: true, records: true, client: botocore()},
		{name: "as a kubelet starts them", lead: true, records: true, client: goSDK()},
		{name: "at once", records: true, client: botocore()},
		{name: "as a kubelet starts them", lead: true, client: botocore()},
		{name: "late word", lead: true, late: func() time.Duration { return between(500, 1500) }, client: botocore()},
		{name: "late word", pods: 40, lead: true, late: func() time.Duration { return between(500, 1500) }, client: botocore()},
		{name: "late word, prompt watch", lag: 50 * time.Millisecond, lead: true, late: func() time.Duration { return between(800, 2200) }, client: botocore()},
		{name: "at once", client: goSDK()},
	} {
		r.roles, r.pods, r.lag = 5, cmp.Or(r.pods, stormPods), cmp.Or(r.lag, watchLag)
		got, err := b.rush(ctx, r)
		if err != nil {
			return nil, fmt.Errorf("%s, %s: %w", r.name, r.client.name, err)
		}
		t.add(r.name, fmt.Sprint(r.pods), onOff(r.records), r.client.name, got.failed(), got.vain(), got.callsMade(), seconds(got.tookAt(.5)), seconds(got.tookAt(1)))
		b.reasons(got)
	}
	return []table{t}, nil
}

// manyRoles is the rush in which STS's limit is what everybody waits for.
func manyRoles(ctx context.Context, b *bench) ([]table, error) {
	t := table{
		columns: []string{"pods' start", "--sts-rate, --sts-burst", "without credentials at first", "after their turn", "AssumeRole calls", "refused by STS", "last session after", "at best"},
		note: fmt.Sprintf("%d pods with as many roles, botocore, CNI records, as a kubelet starts them; STS takes 20 calls a second. A program without credentials asks again "+
			"after 2 s. After their turn: the askings in vain among those made when, at that rate, the role could have had its session. At best: the time that so many calls take at the daemon's own rate, with the watch's lag before "+
			"and one answer of STS after them.", stormPods),
	}
	for _, r := range []struct {
		rush
		rate, burst float64
	}{
		{rush{name: "all together", lead: true, again: 2 * time.Second}, 10, 20},
		// Not the whole of STS's 20: whoever asks at the very limit is refused now and then, and waits for a second try.
		{rush{name: "each when its turn could come", begins: turn(18, 20), again: 2 * time.Second}, 18, 20},
	} {
		r.roles, r.pods, r.lag, r.records, r.limit, r.client = stormPods, stormPods, watchLag, true, 20, botocore()
		r.args = []string{fmt.Sprintf("--sts-rate=%g", r.rate), fmt.Sprintf("--sts-burst=%g", r.burst)}
		got, err := b.rush(ctx, r.rush)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", r.name, err)
		}
		turns := turn(r.rate, r.burst)
		moment := func(pod int) time.Time {
			if r.begins == nil {
				pod = stormPods - 1 // whose turn is when, nobody has said
			}
			return got.begin.Add(turns(pod))
		}
		t.add(r.name, fmt.Sprintf("%g/s, %g", r.rate, r.burst), got.failed(), got.failedSince(moment), got.callsMade(), fmt.Sprint(got.refused),
			seconds(slices.Max(got.served)), seconds(turns(stormPods-1)))
		b.reasons(got)
	}
	return []table{t}, nil
}

// turn says when the n-th role's session can be there: the watch's lag after the pod was scheduled, and as many
// calls later as are before it, and an answer of STS.
func turn(perSecond, burst float64) func(n int) time.Duration {
	return func(n int) time.Duration {
		return watchLag + time.Duration(max(0, float64(n+1)-burst)/perSecond*float64(time.Second)) + 400*time.Millisecond
	}
}

func onOff(on bool) string {
	if on {
		return "yes"
	}
	return "no"
}
