package credentials_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"pod2role/credentials"
)

func TestSessionInUseIsRenewedBeforeAnybodyWouldNotice(t *testing.T) {
	for name, use := range map[string]func(*credentials.Cache){
		"referred to":        func(c *credentials.Cache) { c.Refer("pod", role("reader")) },
		"only asked for":     func(*credentials.Cache) {},
		"referred to by two": func(c *credentials.Cache) { c.Refer("a", role("reader")); c.Refer("b", role("reader")) },
	} {
		bubble(name, t, func(t *testing.T) {
			f := &fake{latency: 200 * time.Millisecond}
			c := f.start(t, credentials.Config{})
			use(c)
			get(t, c, role("reader"))
			for range 3 * 60 {
				time.Sleep(time.Minute)
				begin := time.Now()
				if _, left := get(t, c, role("reader")); left < 25*time.Minute {
					t.Fatalf("got a session with %s left, want at least 25m", left)
				}
				if took := time.Since(begin); took != 0 {
					t.Fatalf("got an answer after %s, want it at once", took)
				}
			}
			if n := f.count(""); n < 6 || n > 7 {
				t.Errorf("got %d calls in three hours, want 6 or 7", n)
			}
		})
	}
}

func TestRenewalsOfManySessionsDoNotCoincide(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		c := f.start(t, credentials.Config{Limit: 1000, Burst: 1000})
		for i := range 100 {
			c.Refer(fmt.Sprint("pod-", i), role(fmt.Sprint("role-", i)))
		}
		time.Sleep(40 * time.Minute)
		perMinute := map[int]int{}
		calls := f.made()
		for _, call := range calls[100:] {
			perMinute[call.at.Minute()]++
		}
		if len(calls) != 200 || len(perMinute) < 4 {
			t.Errorf("got %d calls, the second half in the minutes %v, want 200 spread over 4 minutes", len(calls), perMinute)
		}
	})
}

func TestSessionOutlivesAnOutageUntilShortlyBeforeItExpires(t *testing.T) {
	for name, trouble := range map[string]error{
		"unavailable": errDown, "throttled": errSlow,
		"own identity": &credentials.Error{Kind: credentials.OwnIdentity, Code: "ExpiredToken"},
		"invalid":      &credentials.Error{Kind: credentials.Invalid, Code: "ValidationError"},
	} {
		bubble(name, t, func(t *testing.T) {
			f := &fake{}
			c := f.start(t, credentials.Config{})
			c.Refer("pod", role("reader"))
			first, _ := get(t, c, role("reader"))
			f.set(func(f *fake) { f.fail = trouble })
			for time.Until(first.Expiration) > 61*time.Second {
				begin := time.Now()
				if s, _ := get(t, c, role("reader")); s != first || time.Since(begin) != 0 {
					t.Fatalf("got another session, or after %s, want the old one at once", time.Since(begin))
				}
				time.Sleep(time.Second)
			}
			time.Sleep(2 * time.Second)
			if e := refusal(t, c, role("reader")); e.Error() == "" {
				t.Errorf("got error %v, want the trouble", e)
			}
			if n := f.count(""); n > 80 {
				t.Errorf("got %d calls in an outage of an hour, want no more than 80", n)
			}
			f.set(func(f *fake) { f.fail = nil })
			time.Sleep(time.Minute)
			get(t, c, role("reader"))
		})
	}
}

func TestLifeBelowTheFloorIsWaitedForNoLongerThanAPodIsPatient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		c := f.start(t, credentials.Config{Limit: 1.0 / 7200, Burst: 1}) // the only call for two hours
		c.Refer("pod", role("reader"))
		first, _ := get(t, c, role("reader"))
		for _, at := range []struct {
			left, wait time.Duration
		}{{11 * time.Minute, 0}, {9 * time.Minute, 800 * time.Millisecond}} {
			time.Sleep(time.Until(first.Expiration) - at.left)
			begin := time.Now()
			if s, _ := get(t, c, role("reader")); s != first || time.Since(begin) != at.wait {
				t.Errorf("with %s left: got a session after %s, want the old one after %s", at.left, time.Since(begin), at.wait)
			}
		}
	})
}

func TestShortSessionsAreRenewedInProportion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const life = 40 * time.Second
		f := &fake{latency: 100 * time.Millisecond, lifetime: life}
		c := f.start(t, credentials.Config{RevocationGrace: 5 * time.Minute})
		c.Refer("pod", role("reader"))
		get(t, c, role("reader"))
		for range 300 {
			time.Sleep(time.Second)
			begin := time.Now()
			_, left := get(t, c, role("reader"))
			if left < life*25/60 || time.Since(begin) != 0 {
				t.Fatalf("got a session with %s left after %s, want at least %s at once", left, time.Since(begin), life*25/60)
			}
		}
		if n := f.count(""); n < 13 || n > 16 {
			t.Errorf("got %d calls in five minutes, want 13 to 16", n)
		}
		// Through an outage it is served until two thirds of a second before its end.
		f.set(func(f *fake) { f.fail = errDown })
		last, _ := get(t, c, role("reader"))
		time.Sleep(time.Until(last.Expiration) - 700*time.Millisecond)
		if s, _ := get(t, c, role("reader")); s != last {
			t.Errorf("got another session, want the old one")
		}
		time.Sleep(100 * time.Millisecond)
		refusal(t, c, role("reader"))
		f.set(func(f *fake) { f.fail = nil })
		time.Sleep(5 * time.Second)
		get(t, c, role("reader"))
	})
}

func TestSessionThatNobodyUsesIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		c := f.start(t, credentials.Config{})
		c.Refer("pod", role("referred"))
		c.Refer("gone", role("released"))
		get(t, c, role("asked"))
		get(t, c, role("released"))
		time.Sleep(time.Minute)
		c.Release("gone")
		c.Release("gone") // twice is once
		c.Release("never was")
		time.Sleep(9 * time.Minute)
		get(t, c, role("released")) // a request may still be under way
		time.Sleep(2 * time.Minute)
		want := map[string]bool{role("referred").RoleARN: true, role("released").RoleARN: true}
		for range 2 {
			if got := held(c); fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("got sessions of %v, want %v", got, want)
			}
			time.Sleep(11 * time.Minute)
			delete(want, role("released").RoleARN)
		}
		time.Sleep(3 * time.Hour)
		if n := f.count(role("asked").RoleARN) + f.count(role("released").RoleARN); n != 2 {
			t.Errorf("got %d calls for what nobody uses, want the first 2 only", n)
		}
	})
}

func TestSessionStaysUntilItsLastOwnerIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		c := f.start(t, credentials.Config{})
		c.Refer("a", role("reader"))
		c.Refer("a", role("reader")) // again changes nothing
		c.Refer("b", role("reader"))
		c.Release("a")
		time.Sleep(2 * time.Hour)
		if n := f.count(""); n < 4 || len(held(c)) != 1 {
			t.Errorf("got %d calls and sessions %v, want it renewed for the owner that is left", n, held(c))
		}
		c.Refer("b", role("writer"))
		time.Sleep(time.Hour)
		if got := held(c); len(got) != 1 || !got[role("writer").RoleARN] {
			t.Errorf("got sessions %v, want only that of the role its owner moved to", got)
		}
	})
}

// held returns the roles of which a session is held.
func held(c *credentials.Cache) map[string]bool {
	roles := map[string]bool{}
	for _, s := range c.States() {
		if s.AccessKeyID != "" {
			roles[s.RoleARN] = true
		}
	}
	return roles
}
