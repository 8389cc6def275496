package credentials

import (
	"testing"
	"testing/synctest"
	"time"
)

// hourly returns the thresholds that a cache has by default.
func hourly() *Config {
	return &Config{Duration: time.Hour, Floor: 10 * time.Minute, Stop: time.Minute}
}

func TestLifeEndsByTheClockThatSaysSoFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		requested := time.Now()
		l := newLife(hourly(), requested, requested.Add(time.Hour))
		// To set the wall clock back by some time moves what STS said away by as much, and the other way round.
		for _, step := range []struct {
			name string
			by   time.Duration
			want time.Duration // left after half an hour
		}{
			{"left alone", 0, 30 * time.Minute},
			{"set back", -6 * time.Hour, 30 * time.Minute},
			{"set forward", 20 * time.Minute, 10 * time.Minute},
			{"set forward past the end", 2 * time.Hour, -90 * time.Minute},
		} {
			stepped := l
			stepped.expires = l.expires.Add(-step.by)
			if got := stepped.left(requested.Add(30 * time.Minute)); got != step.want {
				t.Errorf("%s: got %s left, want %s", step.name, got, step.want)
			}
		}
	})
}

func TestLifeIsNoLongerThanWhatWasAskedFor(t *testing.T) {
	requested := time.Now()
	l := newLife(hourly(), requested, requested.Add(7*time.Hour)) // the node's clock is six hours late
	if got := l.left(requested); got != time.Hour {
		t.Errorf("got %s left, want 1h", got)
	}
}

func TestLifeDoesNotTrustAMonotonicReadingInWhatSTSSaid(t *testing.T) {
	l := newLife(hourly(), time.Now(), time.Now().Add(time.Hour))
	if got, want := l.expires.String(), l.expires.Round(0).String(); got != want {
		t.Errorf("got expiration %s, want one by the wall clock alone", got)
	}
}

func TestThresholdsShrinkWithTheLife(t *testing.T) {
	requested := time.Now().Round(0)
	for _, tt := range []struct{ length, floor, stop time.Duration }{
		{time.Hour, 10 * time.Minute, time.Minute},
		{30 * time.Minute, 5 * time.Minute, 30 * time.Second},
		{15 * time.Minute, 150 * time.Second, 15 * time.Second},
		{36 * time.Second, 6 * time.Second, 600 * time.Millisecond},
	} {
		l := newLife(hourly(), requested, requested.Add(tt.length))
		if l.floor() != tt.floor || l.stop() != tt.stop {
			t.Errorf("%s: got floor %s and stop %s, want %s and %s", tt.length, l.floor(), l.stop(), tt.floor, tt.stop)
		}
		if l.renew > tt.length/2 || l.renew < tt.length*26/60 {
			t.Errorf("%s: got renewal with %s left, want between %s and %s", tt.length, l.renew, tt.length*26/60, tt.length/2)
		}
	}
	long := &Config{Duration: 12 * time.Hour, Floor: 10 * time.Minute, Stop: time.Minute}
	if l := newLife(long, requested, requested.Add(12*time.Hour)); l.floor() != 10*time.Minute || l.stop() != time.Minute {
		t.Errorf("12h: got floor %s and stop %s, want those of an hour", l.floor(), l.stop())
	}
}

func TestSessionIsServedAccordingToTheLifeItHasLeft(t *testing.T) {
	requested := time.Now()
	e := &entry{session: &Session{}, life: newLife(hourly(), requested, requested.Add(time.Hour))}
	for _, tt := range []struct {
		name     string
		left     time.Duration
		failures int
		hurried  bool
		want     bool
	}{
		{"above the floor", 10 * time.Minute, 0, false, true},
		{"below the floor", 10*time.Minute - 1, 0, false, false},
		{"below the floor while STS fails", 10*time.Minute - 1, 1, false, true},
		{"below the floor in a hurry", 10*time.Minute - 1, 0, true, true},
		{"above the end while STS fails", time.Minute + 1, 1, true, true},
		{"at the end", time.Minute, 1, true, false},
		{"expired", -time.Second, 1, true, false},
	} {
		e.failures = tt.failures
		session, left := e.serve(requested.Add(time.Hour-tt.left), tt.hurried)
		if got := session != nil; got != tt.want || got && left != tt.left {
			t.Errorf("%s: got served: %v with %s left, want served: %v", tt.name, got, left, tt.want)
		}
	}
}
