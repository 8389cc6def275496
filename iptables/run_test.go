package iptables

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A fakeKernel is a back end in which a peer may undo every apply.
type fakeKernel struct {
	backend
	mu        sync.Mutex
	plan      plan // applied last
	problems  []string
	undo      bool // everything that is applied is changed again at once
	applyErr  error
	watchErrs int // so many calls of watch fail

	applied, inspected, watched int
	changed                     chan struct{}
}

func (k *fakeKernel) name() string { return "a fake" }

func (k *fakeKernel) apply(p plan) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.applied++
	k.plan = p
	if k.applyErr != nil {
		return k.applyErr
	}
	if !k.undo || k.applied > 1000 {
		k.problems = nil
	}
	k.tell()
	return nil
}

func (k *fakeKernel) inspect(p plan) (inspection, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.inspected++
	if len(k.plan.redirect) > 0 && !slices.Equal(k.plan.redirect, p.redirect) {
		return inspection{present: true, problems: []string{"another redirect"}}, nil
	}
	return inspection{present: true, problems: k.problems}, nil
}

func (k *fakeKernel) watch() (watcher, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.watched++
	if k.watched <= k.watchErrs {
		return nil, errors.New("no")
	}
	k.changed = make(chan struct{}, 1)
	return k, nil
}

func (k *fakeKernel) changes() <-chan struct{} { return k.changed }
func (k *fakeKernel) close()                   {}

func (k *fakeKernel) tell() {
	select {
	case k.changed <- struct{}{}:
	default:
	}
}

// set changes what the fake does, from the test's goroutine.
func (k *fakeKernel) set(change func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	change()
}

func startRun(t *testing.T, k *fakeKernel, c Config) (stop func()) {
	t.Helper()
	c.Metadata, c.NodeAddrs, c.Port = DefaultMetadata(), []netip.Addr{netip.MustParseAddr("10.0.0.10")}, 8181
	p, err := newPlan(c)
	if err != nil {
		t.Fatal(err)
	}
	r, err := newRedirect(c, p, k)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	return func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: got %v, want nil", err)
		}
	}
}

func TestAPeerThatFightsCostsOneRepairASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := &fakeKernel{problems: []string{"changed"}, undo: true}
		stop := startRun(t, k, Config{})
		time.Sleep(100 * time.Second)
		synctest.Wait()
		stop()
		if most := 100*repairsPerSecond + repairBurst + 2; k.applied > most || k.applied < 90 {
			t.Errorf("got %d repairs in 100 s, want about one a second and at most %d", k.applied, most)
		}
	})
}

func TestRulesAreLookedAtEveryResyncWithoutAnyNews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := &fakeKernel{}
		stop := startRun(t, k, Config{})
		time.Sleep(10*time.Minute + time.Second)
		synctest.Wait()
		stop()
		if k.inspected != 11 || k.applied != 0 {
			t.Errorf("got %d looks and %d repairs in ten minutes, want 11 and none", k.inspected, k.applied)
		}
	})
}

func TestAChangeNobodyTellsOfIsRepairedAtTheNextResync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := &fakeKernel{watchErrs: 100}
		stop := startRun(t, k, Config{Resync: 10 * time.Second})
		synctest.Wait()
		k.set(func() { k.problems = []string{"changed"} })
		time.Sleep(11 * time.Second)
		synctest.Wait()
		stop()
		if k.applied != 1 {
			t.Errorf("got %d repairs, want 1", k.applied)
		}
	})
}

func TestTheKernelsNewsAreListenedToAgainAfterAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := &fakeKernel{}
		stop := startRun(t, k, Config{})
		synctest.Wait()
		close(k.changed)
		time.Sleep(time.Minute + time.Second)
		synctest.Wait()
		if k.watched != 2 {
			t.Errorf("got %d watches, want a second one", k.watched)
		}
		k.set(func() { k.problems = []string{"changed"} })
		k.tell()
		synctest.Wait()
		stop()
		if k.applied != 1 {
			t.Errorf("got %d repairs, want 1", k.applied)
		}
	})
}

func TestARepairThatFailsIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := &fakeKernel{problems: []string{"changed"}, applyErr: errors.New("no")}
		stop := startRun(t, k, Config{})
		synctest.Wait()
		k.set(func() { k.applyErr = nil })
		time.Sleep(time.Minute + time.Second)
		synctest.Wait()
		stop()
		if k.applied != 2 || k.problems != nil {
			t.Errorf("got %d attempts with %q left, want 2 and nothing", k.applied, k.problems)
		}
	})
}

func TestTheRedirectFollowsTheNodesAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		current, lookUpErr := []netip.Addr{netip.MustParseAddr("10.0.0.10")}, error(nil)
		set := func(err error, addrs ...string) {
			mu.Lock()
			defer mu.Unlock()
			current, lookUpErr = nil, err
			for _, a := range addrs {
				current = append(current, netip.MustParseAddr(a))
			}
		}
		k := &fakeKernel{problems: []string{"nothing there"}}
		stop := startRun(t, k, Config{CurrentNodeAddrs: func(context.Context) ([]netip.Addr, error) {
			mu.Lock()
			defer mu.Unlock()
			return current, lookUpErr
		}})
		steps := []struct {
			name  string
			err   error
			addrs []string
			want  string
		}{
			{"at first", nil, []string{"10.0.0.10"}, "10.0.0.10:8181"},
			{"another", nil, []string{"10.0.0.77"}, "10.0.0.77:8181"},
			{"not to be found out", errors.New("no"), nil, "10.0.0.77:8181"},
			{"none", nil, nil, "10.0.0.77:8181"},
			{"nonsense", nil, []string{"127.0.0.1"}, "10.0.0.77:8181"},
			{"back", nil, []string{"10.0.0.10"}, "10.0.0.10:8181"},
		}
		for _, s := range steps {
			set(s.err, s.addrs...)
			time.Sleep(time.Minute + time.Second)
			synctest.Wait()
			k.set(func() {
				if got := k.plan.redirect[0].to.String(); got != s.want {
					t.Errorf("%s: got %s, want %s", s.name, got, s.want)
				}
			})
		}
		stop()
	})
}
