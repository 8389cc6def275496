package credentials_test

import (
	"testing"
	"testing/synctest"
	"time"

	"pod2role/credentials"
)

const grace = 5 * time.Minute

// refuse makes the fake refuse some roles.
func (f *fake) refuse(names ...string) {
	f.set(func(f *fake) {
		f.failRole = map[string]error{}
		for _, name := range names {
			f.failRole[role(name).RoleARN] = errRefused
		}
	})
}

// use refers to roles and waits until there is a session of each.
func use(t *testing.T, c *credentials.Cache, names ...string) {
	t.Helper()
	for _, name := range names {
		c.Refer("pod of "+name, role(name))
		get(t, c, role(name))
	}
}

// served says for how long, from now on, the cache serves the role: in steps of a second, at most an hour.
func served(t *testing.T, c *credentials.Cache, name string) (lasted time.Duration, then *credentials.Error) {
	t.Helper()
	begin := time.Now()
	for time.Since(begin) < time.Hour {
		if _, err := c.Get(t.Context(), role(name)); err != nil {
			return time.Since(begin), refusal(t, c, role(name))
		}
		time.Sleep(time.Second)
	}
	return time.Since(begin), nil
}

func TestRevokedRoleIsGivenUpAfterItsGrace(t *testing.T) {
	for name, others := range map[string][]string{
		"beside others": {"writer", "lister"},
		"alone":         nil, // nothing to compare with: the refusal is taken at its word
	} {
		bubble(name, t, func(t *testing.T) {
			f := &fake{}
			c := f.start(t, credentials.Config{RevocationGrace: grace})
			use(t, c, append(others, "reader")...)
			f.refuse("reader")
			// Renewal is due between the 30th and the 34th minute.
			lasted, err := served(t, c, "reader")
			if lasted < 35*time.Minute-time.Second || lasted > 39*time.Minute+time.Minute || err.Kind != credentials.Refused {
				t.Errorf("was served for %s, then error %v, want about 35 to 40 minutes, then a refusal", lasted, err)
			}
			for _, other := range others {
				get(t, c, role(other))
			}
			if n := f.count(role("reader").RoleARN); n > 15 {
				t.Errorf("got %d calls for the revoked role, want no more than 15", n)
			}
		})
	}
}

func TestNoGraceGivesARevokedRoleUpAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		c := f.start(t, credentials.Config{})
		use(t, c, "reader", "writer")
		f.refuse("reader")
		if lasted, _ := served(t, c, "reader"); lasted > 34*time.Minute+time.Second {
			t.Errorf("was served for %s, want until the first renewal", lasted)
		}
	})
}

func TestNobodyIsRevokedWhileAllRolesFailTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		c := f.start(t, credentials.Config{RevocationGrace: grace})
		use(t, c, "reader", "writer", "lister")
		f.set(func(f *fake) { f.fail = errRefused })
		for _, name := range []string{"reader", "writer", "lister"} {
			s, _ := get(t, c, role(name))
			time.Sleep(time.Until(s.Expiration) - 62*time.Second)
			if got, _ := get(t, c, role(name)); got != s {
				t.Errorf("%s: got another session, want the old one until the end", name)
			}
		}
		time.Sleep(5 * time.Second)
		if e := refusal(t, c, role("reader")); e.Kind != credentials.Refused {
			t.Errorf("got error %v, want the refusal", e)
		}
	})
}

func TestOneOfManyRolesFailingWithItsOwnOtherKeysIsRevoked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		c := f.start(t, credentials.Config{RevocationGrace: grace})
		use(t, c, "reader")
		own := role("reader")
		own.Name = "a-pod"
		c.Refer("another pod", own)
		get(t, c, own)
		f.refuse("reader")
		if lasted, _ := served(t, c, "reader"); lasted > 41*time.Minute {
			t.Errorf("was served for %s, want that another session of the same role is no comparison", lasted)
		}
	})
}

func TestTwoRevokedRolesAreToldByTheThird(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		c := f.start(t, credentials.Config{RevocationGrace: grace})
		use(t, c, "reader", "writer", "lister")
		f.refuse("reader", "writer")
		for _, name := range []string{"reader", "writer"} {
			if lasted, _ := served(t, c, name); lasted > 41*time.Minute {
				t.Errorf("%s: was served for %s, want until the grace is over", name, lasted)
			}
		}
		get(t, c, role("lister"))
	})
}

func TestRoleThatNeverWorkedIsNoComparison(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		f.refuse("broken")
		c := f.start(t, credentials.Config{RevocationGrace: grace})
		c.Refer("pod", role("broken"))
		use(t, c, "reader")
		f.refuse("broken", "reader")
		if lasted, _ := served(t, c, "reader"); lasted > 41*time.Minute {
			t.Errorf("was served for %s, want until the grace is over", lasted)
		}
	})
}

func TestRefusalThatIsTakenBackWithinTheGraceHarmsNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		c := f.start(t, credentials.Config{RevocationGrace: grace})
		use(t, c, "reader", "writer")
		f.refuse("reader")
		for f.count(role("reader").RoleARN) == 1 {
			time.Sleep(time.Second)
		}
		time.AfterFunc(grace-61*time.Second, func() { f.refuse() })
		if lasted, err := served(t, c, "reader"); err != nil {
			t.Errorf("was served for %s, then error %v, want for ever", lasted, err)
		}
	})
}

func TestOutageAfterARefusalDoesNotRevoke(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		c := f.start(t, credentials.Config{RevocationGrace: grace})
		use(t, c, "reader", "writer")
		s, _ := get(t, c, role("reader"))
		f.refuse("reader")
		for f.count(role("reader").RoleARN) == 1 {
			time.Sleep(time.Second)
		}
		f.set(func(f *fake) { f.fail = errDown })
		time.Sleep(time.Until(s.Expiration) - 62*time.Second)
		if got, _ := get(t, c, role("reader")); got != s {
			t.Errorf("got another session, want the old one")
		}
	})
}
