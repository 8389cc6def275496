package credentials_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pod2role/credentials"
)

func TestColdGetsOfOneKeyMakeOneCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{latency: 3 * time.Second}
		c := f.start(t, credentials.Config{})
		sessions := make([]*credentials.Session, 200)
		var wg sync.WaitGroup
		for i := range sessions {
			wg.Go(func() { sessions[i], _ = c.Get(t.Context(), role("reader")) })
		}
		wg.Wait()
		for i, s := range sessions {
			if s == nil || s != sessions[0] {
				t.Fatalf("caller %d got session %v, want the one of all", i, s)
			}
		}
		if n := f.count(""); n != 1 {
			t.Errorf("got %d calls, want 1", n)
		}
	})
}

func TestKeysThatDifferInAnyFieldDoNotShareASession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		c := f.start(t, credentials.Config{})
		plain := role("reader")
		named, external, tagged, other := plain, plain, plain, role("writer")
		named.Name = "another"
		external.ExternalID = "partner-1"
		tagged.Tags = `[{"Key":"pod","Value":"a"}]`
		for _, key := range []credentials.Key{plain, named, external, tagged, other} {
			if s, _ := get(t, c, key); s.Key != key {
				t.Errorf("got a session of %s, want one of %s", s.Key, key)
			}
		}
		if n := f.count(""); n != 5 {
			t.Errorf("got %d calls, want 5", n)
		}
	})
}

func TestCallSurvivesTheCallerWhoCausedIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{latency: 2 * time.Second}
		c := f.start(t, credentials.Config{})
		var wg sync.WaitGroup
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
			defer cancel()
			begin := time.Now()
			_, err := c.Get(ctx, role("reader"))
			if !errors.Is(err, context.DeadlineExceeded) || time.Since(begin) != 500*time.Millisecond {
				t.Errorf("got error %v after %s, want the caller's own deadline after 500ms", err, time.Since(begin))
			}
			if e, ok := errors.AsType[*credentials.Error](err); !ok || e.Kind != credentials.Unavailable {
				t.Errorf("got error %v, want one of kind unavailable", err)
			}
		})
		wg.Go(func() {
			time.Sleep(100 * time.Millisecond)
			get(t, c, role("reader"))
		})
		wg.Wait()
		get(t, c, role("reader"))
		if n := f.count(""); n != 1 {
			t.Errorf("got %d calls, want 1", n)
		}
	})
}

func TestSessionIsThereForTheRetryOfACallerWhoLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{latency: 900 * time.Millisecond}
		c := f.start(t, credentials.Config{})
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := c.Get(gone, role("reader")); !errors.Is(err, context.Canceled) {
			t.Errorf("got error %v, want that the caller left", err)
		}
		time.Sleep(time.Second)
		begin := time.Now()
		get(t, c, role("reader"))
		if took := time.Since(begin); took != 0 || f.count("") != 1 {
			t.Errorf("got an answer after %s and %d calls, want it at once after 1", took, f.count(""))
		}
	})
}

func TestRefusalIsRememberedForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{fail: errRefused}
		c := f.start(t, credentials.Config{})
		for range 100 {
			e := refusal(t, c, role("reader"))
			if e.Kind != credentials.Refused || e.Code != "AccessDenied" || e.RequestID != "r-1" {
				t.Fatalf("got error %+v, want what STS said", e)
			}
			time.Sleep(140 * time.Millisecond)
		}
		if n := f.count(""); n != 1 {
			t.Errorf("got %d calls within 14s, want 1", n)
		}
		// From then on it is asked again, but never more often than each quarter of a minute.
		for range 3600 {
			refusal(t, c, role("reader"))
			time.Sleep(time.Second)
		}
		if n := f.count(""); n < 60 || n > 240 {
			t.Errorf("got %d calls within an hour, want between 60 and 240", n)
		}
		f.set(func(f *fake) { f.fail = nil })
		time.Sleep(time.Minute)
		get(t, c, role("reader"))
	})
}

func TestRefusalSaysWhenToComeBackAndNamesTheRole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{fail: errRefused}
		c := f.start(t, credentials.Config{})
		refusal(t, c, role("reader"))
		e := refusal(t, c, role("reader"))
		if e.RetryAfter < 15*time.Second || e.RetryAfter > time.Minute {
			t.Errorf("got %s to wait, want between 15s and 1m", e.RetryAfter)
		}
		_, err := c.Get(t.Context(), role("reader"))
		want := "assuming role arn:aws:iam::111122223333:role/reader: STS refuses this node the role: AccessDenied: user is not authorized to perform: sts:AssumeRole (request r-1)"
		if err.Error() != want {
			t.Errorf("got error %q, want %q", err, want)
		}
	})
}

func TestRefusalOfOneExternalIDDoesNotHarmAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// https://github.com/jtblin/kube2iam keys its cache by the ARN alone.
		f := &fake{}
		assume := func(ctx context.Context, key credentials.Key, d time.Duration) (*credentials.Session, error) {
			if key.ExternalID != "right" {
				return nil, errRefused
			}
			return f.assume(ctx, key, d)
		}
		c, err := credentials.New(credentials.Config{Assume: assume})
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		ctx, cancel := context.WithCancel(t.Context())
		wg.Go(func() { _ = c.Run(ctx) })
		right, wrong := role("reader"), role("reader")
		right.ExternalID, wrong.ExternalID = "right", "wrong"
		refusal(t, c, wrong)
		get(t, c, right)
		refusal(t, c, wrong)
		cancel()
		wg.Wait()
	})
}

func TestTroubleThatPassesIsWaitedFor(t *testing.T) {
	for name, trouble := range map[string]error{"unavailable": errDown, "throttled": errSlow, "not classified": errors.New("connection reset")} {
		bubble(name, t, func(t *testing.T) {
			f := &fake{fail: trouble}
			c := f.start(t, credentials.Config{})
			time.AfterFunc(300*time.Millisecond, func() { f.set(func(f *fake) { f.fail = nil }) })
			begin := time.Now()
			get(t, c, role("reader"))
			if took := time.Since(begin); took > 1500*time.Millisecond {
				t.Errorf("got a session after %s, want one soon after STS has recovered", took)
			}
		})
	}
}

func TestGetDoesNotWaitForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{fail: errSlow}
		c := f.start(t, credentials.Config{})
		begin := time.Now()
		e := refusal(t, c, role("reader"))
		if e.Kind != credentials.Throttled || !strings.Contains(e.Error(), "STS has not answered in time") {
			t.Errorf("got error %v, want the last trouble and that time is up", e)
		}
		if took := time.Since(begin); took != 10*time.Second {
			t.Errorf("got an error after %s, want 10s", took)
		}
		if n := f.count(""); n > 12 {
			t.Errorf("got %d calls while one pod waited, want no more than 12", n)
		}
	})
}

func TestCallThatHangsIsGivenUpAndRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{hang: true}
		c := f.start(t, credentials.Config{Timeout: 4 * time.Second})
		refusal(t, c, role("reader"))
		f.set(func(f *fake) { f.hang = false })
		get(t, c, role("reader"))
		if n := f.count(""); n != 2 {
			t.Errorf("got %d calls, want 2", n)
		}
	})
}

func TestStoppedCacheServesWhatItHasAndFetchesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{latency: 30 * time.Second}
		c, err := credentials.New(credentials.Config{Assume: f.assume, Timeout: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- c.Run(ctx) }()
		get(t, c, role("reader"))
		time.AfterFunc(time.Second, cancel)
		begin := time.Now()
		if e := refusal(t, c, role("writer")); e.Kind != credentials.Unavailable {
			t.Errorf("got error %v, want one of kind unavailable", e)
		}
		if took := time.Since(begin); took != time.Second {
			t.Errorf("got an error after %s, want it when the cache stops", took)
		}
		if err := <-done; err != nil {
			t.Errorf("got error %v from Run, want none", err)
		}
		get(t, c, role("reader"))
		refusal(t, c, role("writer"))
		if n := f.count(""); n != 2 {
			t.Errorf("got %d calls, want 2", n)
		}
	})
}

func TestSessionThatHasExpiredOnArrivalIsNotServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{lifetime: -5 * time.Minute} // as if the node's clock were an hour and five minutes ahead
		c := f.start(t, credentials.Config{})
		if e := refusal(t, c, role("reader")); e.Kind != credentials.Unavailable || !strings.Contains(e.Error(), "is the clock right?") {
			t.Errorf("got error %v, want one that doubts the clock", e)
		}
		if n := f.count(""); n > 15 {
			t.Errorf("got %d calls within 10s, want no more than 15", n)
		}
	})
}

func TestNewRefusesWhatCannotWork(t *testing.T) {
	assume := (&fake{}).assume
	for name, cfg := range map[string]credentials.Config{
		"no way to assume roles": {},
		"negative duration":      {Assume: assume, Duration: -1},
		"negative grace":         {Assume: assume, RevocationGrace: -1},
		"negative limit":         {Assume: assume, Limit: -1},
		"negative burst":         {Assume: assume, Burst: -1},
		"floor below stop":       {Assume: assume, Floor: time.Second},
		"floor above renewal":    {Assume: assume, Floor: 26 * time.Minute},
	} {
		if _, err := credentials.New(cfg); err == nil {
			t.Errorf("%s: got no error, want one", name)
		}
	}
}
