package loopback_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"pod2role/sandbox/loopback"
)

func TestJournalKeepsTheLatestEntriesOnly(t *testing.T) {
	j := loopback.NewJournal[int](4)
	var numbers []int
	for i := range 6 {
		numbers = append(numbers, j.Add(i))
	}
	if diff := cmp.Diff([]int{2, 3, 4, 5}, j.All()); diff != "" {
		t.Errorf("All() (-want +got):\n%s", diff)
	}
	j.Update(numbers[0], func(v *int) { *v = -1 }) // gone: no effect
	j.Update(numbers[5], func(v *int) { *v = 50 })
	if diff := cmp.Diff([]int{2, 3, 4, 50}, j.All()); diff != "" {
		t.Errorf("after Update (-want +got):\n%s", diff)
	}
	j.Reset()
	j.Add(7)
	j.Update(numbers[5], func(v *int) { *v = -1 }) // a number is never used twice
	if diff := cmp.Diff([]int{7}, j.All()); diff != "" {
		t.Errorf("after Reset (-want +got):\n%s", diff)
	}
}

func TestJournalWaitCountsWhatIsThereAndWhatComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := loopback.NewJournal[int](100)
		even := func(v int) bool { return v%2 == 0 }
		j.Add(2)
		if got, err := j.Wait(t.Context(), 1, even); got != 2 || err != nil {
			t.Errorf("Wait(1) = %d, %v, want 2, nil", got, err)
		}
		third := make(chan int)
		go func() {
			got, err := j.Wait(t.Context(), 3, even)
			if err != nil {
				t.Errorf("Wait(3): %v", err)
			}
			third <- got
		}()
		synctest.Wait()
		for _, v := range []int{3, 4, 5} {
			j.Add(v)
		}
		synctest.Wait()
		select {
		case got := <-third:
			t.Fatalf("Wait(3) returned %d after two matches", got)
		default:
		}
		j.Add(6)
		if got := <-third; got != 6 {
			t.Errorf("Wait(3) = %d, want 6", got)
		}
	})
}

func TestJournalWaitEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := loopback.NewJournal[int](1).Wait(ctx, 1, nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Wait: %v, want the context's error", err)
		}
	})
}

func TestServeEndsEveryConnectionBeforeItReturns(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	entered, left := make(chan struct{}), make(chan struct{})
	handler := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(entered)
		<-r.Context().Done()
		close(left)
	})
	served := make(chan error)
	go func() { served <- loopback.Serve(ctx, ln, handler) }()

	idle, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = idle.Close() })
	busy, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = busy.Close() })
	if _, err := fmt.Fprint(busy, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	<-entered
	cancel()
	if err := <-served; err != nil {
		t.Errorf("Serve: %v, want nil once its context has ended", err)
	}
	select {
	case <-left:
	default:
		t.Error("Serve returned while a handler was running")
	}
}

func TestServeReportsAListenerThatFails(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := ln.Close(); err != nil {
		t.Fatal(err)
	}
	if err := loopback.Serve(t.Context(), ln, http.NotFoundHandler()); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Serve: %v, want %v", err, net.ErrClosed)
	}
}
