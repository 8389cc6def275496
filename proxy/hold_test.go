package proxy

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestAHoldEndsLikeAnyContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended, end := context.WithCancel(t.Context())
		end()
		for _, tt := range []struct {
			name    string
			parent  context.Context
			release bool
			after   time.Duration
			want    error
		}{
			{"before its deadline", t.Context(), false, time.Second - 1, nil},
			{"at its deadline", t.Context(), false, time.Second, context.DeadlineExceeded},
			{"with the request", ended, false, 0, context.Canceled},
			{"with the request, after its release", ended, true, 0, context.Canceled},
		} {
			h := &hold{Context: tt.parent, deadline: time.Now().Add(time.Second)}
			waiting := &hold{Context: tt.parent, deadline: h.deadline}
			child, cancel := context.WithCancel(waiting)
			if tt.release {
				h.release()
			}
			time.Sleep(tt.after) // the bubble's clock
			synctest.Wait()
			if got := h.Err(); !errors.Is(got, tt.want) || (got == nil) != (tt.want == nil) {
				t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
			}
			if got := child.Err(); !errors.Is(got, tt.want) || (got == nil) != (tt.want == nil) {
				t.Errorf("%s: who waits for it got %v, want %v", tt.name, got, tt.want)
			}
			if tt.want != nil {
				<-h.Done()
			}
			cancel()
			h.release()
			waiting.release()
		}
	})
}
