package identity

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"

	"pod2role/mappings"
)

// TestNoScheduleGivesAPodAnothersRole plays out schedules of births, deaths, addresses used again, late reports, watches
// that lag and break, an API server that is away, stale direct reads and edited annotations, and holds every answer to
// the truth: it is never another pod's role; it is the pod's own role if some source knows the pod; and at the end
// nobody waits.
//
// POD2ROLE_SIMULATIONS is the number of schedules of each kind, POD2ROLE_SIMULATION_SEED the first one's seed: to
// repeat one that failed, set the seed it printed and the number 1.
func TestNoScheduleGivesAPodAnothersRole(t *testing.T) {
	number, first := setting(t, "POD2ROLE_SIMULATIONS", 400), setting(t, "POD2ROLE_SIMULATION_SEED", 1)
	for _, kind := range []struct {
		name               string
		recorded, attested bool
	}{{"records", true, false}, {"records and kernel", true, true}, {"API server and kernel", false, true}} {
		t.Run(kind.name, func(t *testing.T) {
			var total tally
			for seed := first; seed < first+number && !t.Failed(); seed++ {
				synctest.Test(t, func(t *testing.T) {
					simulate(t, seed, newWorld(kind.recorded, kind.attested), &total)
					if t.Failed() {
						t.Logf("POD2ROLE_SIMULATIONS=1 POD2ROLE_SIMULATION_SEED=%d go test -run 'TestNoSchedule.*/%s' ./identity", seed, kind.name)
					}
				})
			}
			t.Logf("seeds %d to %d: %d answers, by verdict %v, %d after a hold", first, first+number-1, total.answers, total.verdicts, total.held)
			if number > 100 && (total.held == 0 || total.verdicts[mappings.Allowed] == 0 || total.verdicts[mappings.Pending] == 0) {
				t.Error("the schedules prove nothing: some case does not occur")
			}
		})
	}
}

func setting(t *testing.T, name string, usual uint64) uint64 {
	t.Helper()
	text, ok := os.LookupEnv(name)
	if !ok {
		return usual
	}
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

type tally struct {
	mu            sync.Mutex
	answers, held int
	verdicts      map[mappings.Verdict]int
}

func (c *tally) add(v mappings.Verdict, held time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.verdicts == nil {
		c.verdicts = map[mappings.Verdict]int{}
	}
	c.answers++
	c.verdicts[v]++
	if held > 0 {
		c.held++
	}
}

// simulation is one schedule being played.
type simulation struct {
	*world
	t        *testing.T
	resolver *Resolver
	total    *tally
	requests sync.WaitGroup
}

func simulate(t *testing.T, seed uint64, w *world, total *tally) {
	const length = 25 * time.Second
	s := &simulation{world: w, t: t, total: total}
	config := Config{
		View: w, Attest: w.attest, MaxHeld: 1 << 20, MaxHeldPerSource: 1 << 20,
		Reads: ReadLimit{Total: rate.Inf, TotalBurst: 1, PerSource: rate.Inf, PerSourceBurst: 1},
	}
	if w.recorded {
		config.Records = w
	}
	s.resolver = newResolver(t, config)
	w.wake = s.resolver.Wake

	r := rand.New(rand.NewPCG(seed, 0))
	w.later(between(r, 0, 2*time.Second), func() { w.ns, w.nsAt = &mappings.Namespace{Name: "shop"}, time.Now() })
	for i := range 12 {
		w.birth(s, rand.New(rand.NewPCG(seed, uint64(i+1))), fmt.Sprintf("%d", i), between(r, 0, length-10*time.Second))
	}
	for range 2 {
		at := between(r, 0, length)
		w.later(at, func() { w.broken = true })
		w.later(at+between(r, 0, 6*time.Second), w.relist)
	}
	if r.IntN(2) == 0 {
		at := between(r, 0, length)
		w.later(at, func() { w.away = true })
		w.later(at+between(r, 0, 12*time.Second), func() {
			w.away, w.backSince = false, time.Now()
			w.relist()
		})
	}
	for range 5 { // requests of nobody, or of who happens to be there
		addr := netip.AddrFrom4([4]byte{10, 0, 0, byte(1 + r.IntN(6))})
		time.AfterFunc(between(r, 0, length), func() {
			w.mu.Lock()
			asker := w.truth[addr]
			w.mu.Unlock()
			if asker == nil {
				return // a packet needs a sender
			}
			s.request(t.Context(), asker)
		})
	}
	<-time.After(2 * length)
	s.requests.Wait()
	synctest.Wait()
	clean(t, s.resolver)
}

// birth has a pod live its life: bound to the node, given an address, started, reported, edited, ended, taken away.
func (w *world) birth(s *simulation, r *rand.Rand, name string, after time.Duration) {
	l := &life{uid: "uid-" + name, name: "pod-" + strconv.Itoa(r.IntN(8)), roles: map[string]bool{}} // names come again
	l.recorded = w.recorded && (!w.attested || r.IntN(6) > 0)                                        // some records cannot be read
	lag := func() time.Duration { return between(r, 5*time.Millisecond, 1500*time.Millisecond) }
	annotations := map[string]string{}
	if r.IntN(6) > 0 {
		annotations = role("role-" + name)
		l.roles[base+"role-"+name] = true
	}
	lags := [6]time.Duration{}
	for i := range lags {
		lags[i] = lag()
	}
	given := between(r, 50*time.Millisecond, 500*time.Millisecond)
	started := between(r, 10*time.Millisecond, 200*time.Millisecond)
	reported := between(r, 100*time.Millisecond, 3*time.Second)
	span := between(r, 300*time.Millisecond, 12*time.Second)
	edited := r.IntN(3) == 0 && len(l.roles) > 0
	finishes := r.IntN(3) == 0
	freed := between(r, 0, 300*time.Millisecond)
	removed := between(r, 50*time.Millisecond, 5*time.Second)
	linger := r.IntN(2) == 0 // its open requests are not cut when it ends
	pauses := [10]time.Duration{}
	for i := range pauses {
		pauses[i] = between(r, 0, 2*time.Second)
	}

	w.later(after, func() {
		w.change(l.uid, &mappings.Pod{UID: l.uid, Namespace: "shop", Name: l.name, Annotations: annotations}, lags[0])
	})
	w.later(after+given, func() {
		if len(w.free) == 0 {
			return // no room: it stays without an address
		}
		l.addr, w.free = w.free[0], w.free[1:]
		w.truth[l.addr] = l
		if l.recorded {
			w.records[l.addr] = Record{UID: l.uid, Namespace: "shop", Name: l.name, Interface: "veth-" + l.uid}
		}
		ready := time.Now().Truncate(time.Second)
		w.later(reported, func() {
			if !l.ended {
				w.edit(l.uid, lags[1], func(p *mappings.Pod) { p.Addrs, p.SandboxReady = []netip.Addr{l.addr}, ready })
			}
		})

		ctx, cancel := context.WithCancel(s.t.Context())
		at := started
		for _, pause := range pauses {
			if at >= span {
				break
			}
			time.AfterFunc(at, func() { s.request(ctx, l) })
			at += pause
		}
		if edited {
			w.later(span/2, func() {
				l.roles[base+"edited-"+name] = true
				w.edit(l.uid, lags[2], func(p *mappings.Pod) { p.Annotations = role("edited-" + name) })
			})
		}
		w.later(span, func() {
			l.ended = true
			if !linger {
				cancel()
			}
		})
		w.later(span+10*time.Second, cancel)
		w.later(span+freed, func() {
			delete(w.truth, l.addr)
			if l.recorded {
				w.taken[l.addr] = taking{l.uid, time.Now()}
			}
			delete(w.records, l.addr)
			w.ends[l.addr] = time.Now()
		})
		// The kernel has times, the API server whole seconds: a claim from the second of an end does not count.
		w.later(span+freed+between(r, time.Millisecond, 50*time.Millisecond), func() {
			if !w.attested {
				w.free = append(w.free, l.addr)
				return
			}
			w.later(time.Second, func() { w.free = append(w.free, l.addr) })
		})
		w.later(span+freed+removed, func() {
			if finishes {
				w.edit(l.uid, lags[3], func(p *mappings.Pod) { p.Finished = true })
				return
			}
			w.edit(l.uid, lags[3], func(p *mappings.Pod) { p.Deleting = true })
			w.change(l.uid, nil, lags[4])
		})
	})
}

// request is one request of l, judged.
func (s *simulation) request(ctx context.Context, l *life) {
	s.requests.Go(func() {
		start := time.Now()
		got := s.resolver.Resolve(ctx, l.addr, 0)
		held := time.Since(start)
		s.total.add(got.Verdict, held)
		if wrong := s.judge(l, l.addr, got, held); wrong != "" {
			s.t.Errorf("after %v: %s\n%v", time.Since(s.start), wrong, got.Trail)
		}
	})
}
