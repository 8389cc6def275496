package credentials_test

import (
	"context"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"pod2role/credentials"
)

// warm returns a running cache that holds a session for the key.
func warm(tb testing.TB, key credentials.Key) *credentials.Cache {
	tb.Helper()
	c, err := credentials.New(credentials.Config{Assume: (&fake{}).assume, Registerer: prometheus.NewRegistry()})
	if err != nil {
		tb.Fatal(err)
	}
	ctx, cancel := context.WithCancel(tb.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = c.Run(ctx) }()
	tb.Cleanup(func() { cancel(); <-done })
	if _, err := c.Get(ctx, key); err != nil {
		tb.Fatal(err)
	}
	return c
}

func TestWarmGetAllocatesNothing(t *testing.T) {
	key := role("reader")
	key.ExternalID, key.Tags = "partner", `[{"Key":"pod","Value":"a"}]`
	c := warm(t, key)
	ctx := t.Context()
	if n := testing.AllocsPerRun(1000, func() {
		if _, err := c.Get(ctx, key); err != nil {
			t.Error(err)
		}
	}); n != 0 {
		t.Errorf("got %v allocations for each Get, want 0", n)
	}
}

func BenchmarkWarmGet(b *testing.B) {
	key := role("reader")
	c := warm(b, key)
	ctx := b.Context()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.Get(ctx, key); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkWarmGetParallel(b *testing.B) {
	key := role("reader")
	c := warm(b, key)
	ctx := b.Context()
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := c.Get(ctx, key); err != nil {
				b.Error(err)
				return
			}
		}
	})
}
