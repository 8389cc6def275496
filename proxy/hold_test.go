package proxy

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// A context whose Done is closed while Err is nil makes package context panic in a goroutine of its own, which ends the
// daemon: it happened when a request ended while something still waited with a context made from its own.
func TestAHoldThatIsReleasedSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := hold{Context: t.Context(), deadline: time.Now().Add(time.Hour)}
		if h.Err() != nil {
			t.Fatalf("at first: %v", h.Err())
		}
		derived, cancel := context.WithCancel(&h)
		defer cancel()
		synctest.Wait()
		h.release()
		synctest.Wait()
		if h.Err() == nil || derived.Err() == nil {
			t.Errorf("released: %v, and what was made from it: %v", h.Err(), derived.Err())
		}
	})
}

func TestAHoldEndsAtItsDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := hold{Context: t.Context(), deadline: time.Now().Add(time.Second)}
		defer h.release()
		<-h.Done()
		if h.Err() != context.DeadlineExceeded { //nolint:errorlint // the very value is what is promised
			t.Errorf("got %v", h.Err())
		}
		late := hold{Context: t.Context(), deadline: time.Now()}
		defer late.release()
		if late.Err() == nil {
			t.Error("a hold whose deadline has passed goes on")
		}
	})
}

func TestAHoldThatNobodyWaitsForSetsNoTimer(t *testing.T) {
	h := hold{Context: t.Context(), deadline: time.Now().Add(time.Hour)}
	h.release()
	if h.Err() != nil {
		t.Errorf("got %v", h.Err())
	}
}
