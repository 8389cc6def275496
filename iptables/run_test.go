package iptables

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A fakeKernel is a back end in which a peer may undo every apply.
type fakeKernel struct {
	backend
	mu        sync.Mutex
	problems  []string
	undo      bool // everything that is applied is changed again at once
	applyErr  error
	watchErrs int // so many calls of watch fail

	applied, inspected, watched int
	changed                     chan struct{}
}

func (k *fakeKernel) apply(plan) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.applied++
	if k.applyErr != nil {
		return k.applyErr
	}
	if !k.undo || k.applied > 1000 {
		k.problems = nil
	}
	k.tell()
	return nil
}

func (k *fakeKernel) inspect(plan) (inspection, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.inspected++
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
