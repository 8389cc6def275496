package credentials_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"pod2role/credentials"
)

func TestCallsOfTheNodeStayWithinTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{latency: 300 * time.Millisecond}
		c := f.start(t, credentials.Config{})
		for i := range 200 {
			c.Refer(fmt.Sprint("pod-", i), role(fmt.Sprint("role-", i)))
		}
		if err := c.Settle(t.Context()); err != nil {
			t.Fatal(err)
		}
		calls := f.made()
		took := calls[199].at.Sub(calls[0].at)
		if took < 18*time.Second-time.Millisecond || took > 18500*time.Millisecond {
			t.Errorf("200 calls began within %s, want 18s: 20 at once, then 10 a second", took)
		}
		for i := range calls[:180] {
			if span := calls[i+20].at.Sub(calls[i].at); i >= 20 && span < 1900*time.Millisecond {
				t.Fatalf("calls %d to %d began within %s, want 2s", i, i+20, span)
			}
		}
	})
}

func TestWaitingPodGoesAheadOfPrefetches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		c := f.start(t, credentials.Config{Limit: 1, Burst: 1})
		for i := range 100 {
			c.Refer(fmt.Sprint("pod-", i), role(fmt.Sprint("role-", i)))
		}
		time.Sleep(5500 * time.Millisecond)
		begin := time.Now()
		get(t, c, role("new"))
		get(t, c, role("role-99")) // its own prefetch is moved up
		if took := time.Since(begin); took > 2*time.Second {
			t.Errorf("two pods waited for %s, want two calls' time at one a second", took)
		}
	})
}

func TestWaitingPodGoesAheadOfRenewals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		c := f.start(t, credentials.Config{Limit: 1, Burst: 1})
		for i := range 600 { // renewals are due faster than the limit allows
			c.Refer(fmt.Sprint("pod-", i), role(fmt.Sprint("role-", i)))
		}
		f.set(func(f *fake) { f.lifetime = 20 * time.Minute })
		time.Sleep(15 * time.Minute)
		begin := time.Now()
		get(t, c, role("new"))
		if took := time.Since(begin); took > time.Second {
			t.Errorf("a pod waited for %s, want one call's time at one a second", took)
		}
	})
}

func TestBrokenRoleDelaysNobody(t *testing.T) {
	for name, broken := range map[string]func(*fake){
		"unavailable": func(f *fake) { f.failRole = map[string]error{role("broken").RoleARN: errDown} },
		"refused":     func(f *fake) { f.failRole = map[string]error{role("broken").RoleARN: errRefused} },
	} {
		bubble(name, t, func(t *testing.T) {
			f := &fake{}
			broken(f)
			c := f.start(t, credentials.Config{Limit: 1, Burst: 1})
			c.Refer("broken pod", role("broken"))
			for i := range 60 {
				c.Refer(fmt.Sprint("pod-", i), role(fmt.Sprint("role-", i)))
			}
			time.Sleep(70 * time.Second)
			if got := len(held(c)); got != 60 {
				t.Errorf("got %d sessions after 70s at one call a second, want all 60", got)
			}
			if n := f.count(role("broken").RoleARN); n > 10 {
				t.Errorf("got %d calls for the broken role, want no more than 10", n)
			}
		})
	}
}

func TestBrokenRoleThatIsReferredToIsTriedAgainByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{fail: errRefused}
		c := f.start(t, credentials.Config{})
		c.Refer("pod", role("reader"))
		time.Sleep(time.Hour)
		if n := f.count(""); n < 12 || n > 40 {
			t.Errorf("got %d calls in an hour, want 12 to 40", n)
		}
		f.set(func(f *fake) { f.fail = nil })
		time.Sleep(5 * time.Minute)
		if len(held(c)) != 1 {
			t.Errorf("got no session 5 minutes after the role was repaired, want one")
		}
	})
}

func TestThrottlingSlowsTheNodeDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{fail: errSlow}
		c := f.start(t, credentials.Config{})
		for i := range 20 {
			c.Refer(fmt.Sprint("pod-", i), role(fmt.Sprint("role-", i)))
		}
		time.Sleep(10 * time.Minute)
		if n := f.count(""); n > 20*12 {
			t.Errorf("got %d calls for 20 roles in 10 minutes of throttling, want no more than 12 each", n)
		}
	})
}

func TestStartIsSpreadForPrefetchesButNotForWaitingPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		c := f.start(t, credentials.Config{StartJitter: 10 * time.Second, Limit: 1000, Burst: 1000})
		for i := range 100 {
			c.Refer(fmt.Sprint("pod-", i), role(fmt.Sprint("role-", i)))
		}
		begin := time.Now()
		get(t, c, role("role-7"))
		if took := time.Since(begin); took != 0 {
			t.Errorf("a pod waited for %s, want no wait", took)
		}
		time.Sleep(5 * time.Second)
		if n := f.count(""); n < 20 || n > 80 {
			t.Errorf("got %d calls in the first half of the jitter, want about 50", n)
		}
		time.Sleep(5 * time.Second)
		if n := f.count(""); n != 100 {
			t.Errorf("got %d calls, want 100", n)
		}
		c.Refer("late", role("late"))
		time.Sleep(time.Millisecond)
		if n := f.count(role("late").RoleARN); n != 1 {
			t.Errorf("got %d calls for a role that came later, want 1 at once", n)
		}
	})
}

func TestSettleWaitsForOneAnswerOfEachRole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{latency: time.Second, failRole: map[string]error{role("broken").RoleARN: errDown}}
		c := f.start(t, credentials.Config{})
		if err := c.Settle(t.Context()); err != nil {
			t.Errorf("got error %v while nothing is referred to, want none", err)
		}
		c.Refer("a", role("reader"))
		c.Refer("b", role("broken"))
		begin := time.Now()
		if err := c.Settle(t.Context()); err != nil || time.Since(begin) != time.Second {
			t.Errorf("got error %v after %s, want none after 1s", err, time.Since(begin))
		}
		f.set(func(f *fake) { f.hang = true })
		c.Refer("c", role("slow"))
		ctx, cancel := contextWithTimeout(t, time.Second)
		defer cancel()
		if err := c.Settle(ctx); !errors.Is(err, ctx.Err()) || err == nil {
			t.Errorf("got error %v, want that time is up", err)
		}
	})
}
