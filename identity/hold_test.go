package identity

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"

	"pod2role/mappings"
)

func TestARequestIsHeldUntilItsPodIsKnown(t *testing.T) {
	pod := newPod("web", addr1)
	for _, tt := range []struct {
		name   string
		before func(*fakeRecords, *fakeView) // what is there at first
		event  func(*fakeRecords, *fakeView) // what comes
	}{
		{"the pod has no address yet", func(*fakeRecords, *fakeView) {}, func(_ *fakeRecords, v *fakeView) { v.put(pod) }},
		{"the record's pod is not in the view yet", func(r *fakeRecords, _ *fakeView) { r.put(addr1, pod) }, func(_ *fakeRecords, v *fakeView) { v.put(pod) }},
		{"the record is not there yet", func(_ *fakeRecords, v *fakeView) { v.put(newPod("web")) }, func(r *fakeRecords, _ *fakeView) { r.put(addr1, pod) }},
		{
			"the pod's namespace has not been seen yet",
			func(_ *fakeRecords, v *fakeView) { v.put(pod); delete(v.namespaces, "shop") },
			func(_ *fakeRecords, v *fakeView) {
				v.mu.Lock()
				defer v.mu.Unlock()
				v.namespaces["shop"] = &mappings.Namespace{Name: "shop"}
			},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				records, view := &fakeRecords{}, newView()
				tt.before(records, view)
				r := newResolver(t, Config{Records: records, View: view})
				start := time.Now()
				time.AfterFunc(700*time.Millisecond, func() {
					if held := r.Held(); len(held) != 1 || held[0].Addr != addr1 || !held[0].Since.Equal(start) || held[0].Waiting == "" {
						t.Errorf("held: %v", held)
					}
					r.Wake() // about something else
				})
				time.AfterFunc(900*time.Millisecond, func() { tt.event(records, view); r.Wake() })
				got := r.Resolve(t.Context(), addr1, 0)
				check(t, got, mappings.Allowed, nil)
				if waited := time.Since(start); waited != 900*time.Millisecond {
					t.Errorf("it was held for %v, want 900ms", waited)
				}
				clean(t, r)
			})
		})
	}
}

func TestAHoldEndsWithTheRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newResolver(t, Config{View: newView()})
		ctx, cancel := context.WithTimeout(t.Context(), 900*time.Millisecond)
		defer cancel()
		got := r.Resolve(ctx, addr1, 0)
		check(t, got, mappings.Pending, nil)
		want := "no pod of this node is known to have the address 10.0.0.1, neither by a record of the CNI nor by the API server; waited 900ms for it"
		if got.Reason != want {
			t.Errorf("reason %q, want %q", got.Reason, want)
		}
		if last := got.Trail[len(got.Trail)-1]; last != (mappings.Step{Looked: "the API server, asked directly", Found: "no such pod"}) {
			t.Errorf("the trail ends with %v", last)
		}
		clean(t, r)
	})
}

func TestTheAPIServerIsAskedAtOnceAndOnceForAll(t *testing.T) {
	pod := newPod("web", addr1)
	for _, tt := range []struct {
		name    string
		records *fakeRecords
	}{{"for the address", nil}, {"for the record's pod", &fakeRecords{}}} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				view := newView()
				view.readPod = func(context.Context, string, string) (*mappings.Pod, error) {
					<-time.After(100 * time.Millisecond)
					return pod, nil
				}
				view.readAddr = func(context.Context, netip.Addr) ([]*mappings.Pod, error) {
					<-time.After(100 * time.Millisecond)
					return []*mappings.Pod{pod}, nil
				}
				config := Config{View: view}
				if tt.records != nil {
					tt.records.put(addr1, pod)
					config.Records = tt.records
				}
				r := newResolver(t, config)
				start := time.Now()
				var wg sync.WaitGroup
				for range 20 {
					wg.Go(func() { check(t, r.Resolve(t.Context(), addr1, 0), mappings.Allowed, pod) })
				}
				wg.Wait()
				if view.reads() != 1 || time.Since(start) != 100*time.Millisecond {
					t.Errorf("asked %v, answered after %v", view.asked, time.Since(start))
				}
				clean(t, r)
			})
		})
	}
}

func TestAnotherPodOfTheSameNameIsNotTheRecordsPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		before, now := newPod("db-0"), newPod("db-0")
		now.UID = "uid-of-the-new-one"
		records := &fakeRecords{}
		records.put(addr1, before)
		view := newView()
		view.readPod = func(context.Context, string, string) (*mappings.Pod, error) { return now, nil }
		r := newResolver(t, Config{Records: records, View: view})
		got := r.Resolve(t.Context(), addr1, 0)
		check(t, got, mappings.Pending, nil)
		if last := got.Trail[len(got.Trail)-1]; !strings.Contains(last.Found, "another pod of that name") {
			t.Errorf("the trail ends with %v", last)
		}
		clean(t, r)
	})
}

func TestAHeldRequestIsNotAnsweredForWhoeverHasTheAddressNext(t *testing.T) {
	for _, tt := range []struct {
		name string
		next func(*fakeRecords, *fakeView) // what becomes of the address
	}{
		{"another pod's record", func(r *fakeRecords, v *fakeView) { v.put(newPod("next")); r.put(addr1, newPod("next")) }},
		{"no record, and a pod that the API server still shows", func(r *fakeRecords, v *fakeView) {
			v.put(newPod("before", addr1))
			r.mu.Lock()
			defer r.mu.Unlock()
			delete(r.records, addr1)
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				records, view := &fakeRecords{}, newView()
				records.put(addr1, newPod("asker"))
				r := newResolver(t, Config{Records: records, View: view})
				time.AfterFunc(time.Second, func() { tt.next(records, view); r.Wake() })
				check(t, r.Resolve(t.Context(), addr1, 0), mappings.Pending, nil)
				check(t, r.Resolve(t.Context(), addr1, 0), mappings.Allowed, nil) // of a request that comes now
				clean(t, r)
			})
		})
	}
}

func TestAQuestionAskedInVainIsAskedAgainAfterPauses(t *testing.T) {
	for _, fail := range []error{nil, errors.New("connection refused")} {
		synctest.Test(t, func(t *testing.T) {
			view := newView()
			var at []time.Duration
			start := time.Now()
			view.readAddr = func(context.Context, netip.Addr) ([]*mappings.Pod, error) {
				at = append(at, time.Since(start))
				return nil, fail
			}
			r := newResolver(t, Config{View: view})
			stop := make(chan struct{})
			go func() { // however many events there are
				for {
					select {
					case <-stop:
						return
					case <-time.After(10 * time.Millisecond):
						r.Wake()
					}
				}
			}()
			check(t, r.Resolve(t.Context(), addr1, 0), mappings.Pending, nil)
			close(stop)
			want := []time.Duration{0, 500 * time.Millisecond, 1500 * time.Millisecond, 3500 * time.Millisecond}
			if fmt.Sprint(at) != fmt.Sprint(want) {
				t.Errorf("asked at %v, want %v", at, want)
			}
			clean(t, r)
		})
	}
}

func TestAnAnswerThatTheViewHasOvertakenIsVoid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		old, young := newPod("old", addr1), newPod("young", addr1)
		view := newView()
		r := newResolver(t, Config{View: view})
		view.readAddr = func(context.Context, netip.Addr) ([]*mappings.Pod, error) {
			<-time.After(100 * time.Millisecond)
			view.put(old, young) // meanwhile, without anybody being told
			<-time.After(100 * time.Millisecond)
			view.readAddr = func(context.Context, netip.Addr) ([]*mappings.Pod, error) { return []*mappings.Pod{old, young}, nil }
			return []*mappings.Pod{old}, nil
		}
		check(t, r.Resolve(t.Context(), addr1, 0), mappings.Ambiguous, nil)
	})
}

func TestAReadEndsWithTheLastWhoWaitsForIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		view := newView()
		var ended time.Duration
		start := time.Now()
		view.readAddr = func(ctx context.Context, _ netip.Addr) ([]*mappings.Pod, error) {
			<-ctx.Done()
			ended = time.Since(start)
			return nil, ctx.Err()
		}
		r := newResolver(t, Config{View: view})
		var wg sync.WaitGroup
		for i := range 3 {
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i+1)*time.Second)
				defer cancel()
				check(t, r.Resolve(ctx, addr1, 0), mappings.Pending, nil)
			})
		}
		wg.Wait()
		synctest.Wait()
		if ended != 3*time.Second {
			t.Errorf("the read ended after %v, want 3s", ended)
		}
		clean(t, r)
	})
}

func TestDirectReadsAreLimited(t *testing.T) {
	t.Run("for each source", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			view := newView()
			r := newResolver(t, Config{View: view, Reads: ReadLimit{PerSource: 0.001, PerSourceBurst: 3}})
			for range 10 {
				ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
				r.Resolve(ctx, addr1, 0)
				cancel()
			}
			if view.reads() != 3 {
				t.Errorf("one source had %d direct reads, want 3", view.reads())
			}
		})
	})
	t.Run("in all", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			view := newView()
			r := newResolver(t, Config{View: view, Reads: ReadLimit{Total: 0.001, TotalBurst: 5}})
			var wg sync.WaitGroup
			for i := range 20 {
				wg.Go(func() { r.Resolve(t.Context(), netip.AddrFrom4([4]byte{10, 1, 0, byte(i)}), 0) })
			}
			wg.Wait()
			if view.reads() != 5 {
				t.Errorf("all sources had %d direct reads, want 5", view.reads())
			}
			clean(t, r)
		})
	})
	t.Run("and so is what is remembered of sources", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := newResolver(t, Config{View: newView(), Reads: ReadLimit{PerSource: 1, PerSourceBurst: 1, Total: rate.Inf}})
			source := func(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}) }
			for i := range maxLimits + 10 {
				if got := r.mayRead(source(i)); got != (i < maxLimits) {
					t.Fatalf("source %d may read: %v", i, got)
				}
			}
			<-time.After(time.Second)
			if !r.mayRead(source(maxLimits)) || len(r.limits) != 1 {
				t.Errorf("after a second %d sources are remembered", len(r.limits))
			}
		})
	})
}

func TestRequestsBeyondTheCapsAreToldSoAtOnce(t *testing.T) {
	for _, tt := range []struct {
		name       string
		config     Config
		more, same mappings.Verdict // of one more request: from another address, from the same
	}{
		{"from one source", Config{MaxHeldPerSource: 3}, mappings.Pending, mappings.Busy},
		{"in all", Config{MaxHeld: 3}, mappings.Busy, mappings.Busy},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				known := newPod("known", netip.MustParseAddr("10.0.0.3"))
				tt.config.View = newView(known)
				r := newResolver(t, tt.config)
				var wg sync.WaitGroup
				for range 3 {
					wg.Go(func() { check(t, r.Resolve(t.Context(), addr1, 0), mappings.Pending, nil) })
				}
				synctest.Wait()
				start := time.Now()
				check(t, r.Resolve(t.Context(), addr1, 0), tt.same, nil)
				check(t, r.Resolve(t.Context(), known.Addrs[0], 0), mappings.Allowed, known)
				if time.Since(start) != 0 {
					t.Errorf("it took %v to be told", time.Since(start))
				}
				check(t, r.Resolve(t.Context(), addr2, 0), tt.more, nil)
				wg.Wait()
				check(t, r.Resolve(t.Context(), addr1, 0), mappings.Pending, nil) // there is room again
				clean(t, r)
			})
		})
	}
}
