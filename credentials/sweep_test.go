package credentials

import (
	"context"
	"testing"
	"time"
)

func TestWhatCannotBeDroppedYetIsNotLookedAtWithoutPause(t *testing.T) {
	key := Key{RoleARN: "arn:aws:iam::111122223333:role/reader"}
	now := time.Now()
	for _, tt := range []struct {
		name string
		keep func(*entry)
	}{
		{"because STS is being called", func(e *entry) { e.flying = true }},
		{"because somebody waits", func(e *entry) { e.join(now); e.fail(now, &Error{Kind: Unavailable}, e.life.cfg) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, err := New(Config{Assume: func(context.Context, Key, time.Duration) (*Session, error) { return nil, context.Canceled }})
			if err != nil {
				t.Fatal(err)
			}
			e := c.entry(key, now)
			e.used = now.Add(-time.Hour) // nobody refers to it, and it has been idle for long
			tt.keep(e)
			ready, wake := c.sweep(now)
			if len(ready) > 0 || !wake.After(now) || c.entries[key] == nil {
				t.Errorf("%d calls to make, look again after %v, %d entries; want none, later, 1", len(ready), wake.Sub(now), len(c.entries))
			}
			e.flying, e.waiters = false, 0
			if c.sweep(now); c.entries[key] != nil {
				t.Error("it is not dropped once it can be")
			}
		})
	}
}
