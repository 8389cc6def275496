package sts_test

import (
	"context"
	"net"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"pod2role/sandbox/sts"
)

func TestFaultsChangeTheAnswers(t *testing.T) {
	tests := []struct {
		name   string
		faults sts.Faults
		want   []string // "" for credentials, else the code
		status int      // of the last
	}{
		{"none", sts.Faults{}, []string{""}, 200},
		{"unavailable", sts.Faults{Outage: sts.Unavailable}, []string{"ServiceUnavailable"}, 503},
		{"failing", sts.Faults{Outage: sts.Failing}, []string{"InternalFailure"}, 500},
		{"throttled", sts.Faults{Throttle: 0.001}, []string{"", "Throttling"}, 400},
		{"denied", sts.Faults{Deny: []string{reader}}, []string{"AccessDenied"}, 403},
		{"another role denied", sts.Faults{Deny: []string{writer}}, []string{""}, 200},
		{"region disabled", hook("RegionDisabledException"), []string{"RegionDisabledException"}, 403},
		{"expired", hook("ExpiredTokenException"), []string{"ExpiredTokenException"}, 400},
		{"packed policy", hook("PackedPolicyTooLarge"), []string{"PackedPolicyTooLarge"}, 400},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := sts.New(sts.Config{})
			s.SetFaults(tt.faults)
			var got []string
			var last answer
			for range tt.want {
				last = call(t, s, signed(userKey), "")
				got = append(got, last.Code)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" || last.Status != tt.status {
				t.Errorf("status %d, want %d; codes (-want +got):\n%s", last.Status, tt.status, diff)
			}
			calls := s.Calls()
			if outcome := calls[len(calls)-1].Outcome; outcome != last.Code && (outcome != "Success" || last.Code != "") {
				t.Errorf("recorded outcome %q, answered %q", outcome, last.Code)
			}
			s.SetFaults(sts.Faults{})
			if got := call(t, s, signed(userKey), ""); got.Status != 200 {
				t.Errorf("after the faults: %+v, want credentials", got)
			}
		})
	}
}

func hook(code string) sts.Faults {
	return sts.Faults{Hook: func(context.Context, sts.Call) *sts.Error { return &sts.Error{Code: code, Message: "scripted"} }}
}

func TestLatencyAndLifetimeAreScripted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := sts.New(sts.Config{Lifetime: time.Hour})
		s.SetFaults(sts.Faults{
			Latency:   time.Second,
			LatencyOf: func(c sts.Call) time.Duration { return c.Duration },
			Lifetime:  40 * time.Second,
		})
		start := time.Now()
		got := call(t, s, signed(userKey), "", "DurationSeconds", "900")
		if took := time.Since(start); took != 901*time.Second {
			t.Errorf("answered after %s, want 901 s", took)
		}
		if want := time.Now().Add(40 * time.Second).UTC().Format(time.RFC3339); got.Expires != want {
			t.Errorf("expires %s, want %s", got.Expires, want)
		}
	})
}

func TestHangingCallsAreAnsweredWhenReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := sts.New(sts.Config{})
		s.SetFaults(sts.Faults{Outage: sts.Hanging})
		var done sync.WaitGroup
		for range 3 {
			done.Go(func() {
				if got := call(t, s, signed(userKey), ""); got.Status != 200 {
					t.Errorf("after the release: %+v, want credentials", got)
				}
			})
		}
		if _, err := s.Wait(t.Context(), 3, nil); err != nil {
			t.Fatal(err)
		}
		s.SetFaults(sts.Faults{Outage: sts.Hanging}) // still hanging
		synctest.Wait()
		for _, c := range s.Calls() {
			if c.Outcome != "" {
				t.Errorf("a hanging call has outcome %q", c.Outcome)
			}
		}
		s.SetFaults(sts.Faults{})
		done.Wait()
		if got := s.Count(reader); got != 3 {
			t.Errorf("Count = %d, want 3", got)
		}
	})
}

func TestCallsAreCountedPerRole(t *testing.T) {
	s := sts.New(sts.Config{MaxCalls: 4})
	for range 9 {
		call(t, s, signed(userKey), "")
	}
	call(t, s, signed(userKey), "", "RoleArn", writer)
	if diff := cmp.Diff([]int{10, 9, 1, 0}, []int{s.Count(""), s.Count(reader), s.Count(writer), s.Count("x")}); diff != "" {
		t.Errorf("counts (-want +got):\n%s", diff)
	}
	if got := len(s.Calls()); got > 4 {
		t.Errorf("%d calls kept, want at most 4", got)
	}
	s.Reset()
	if got, calls := s.Count(""), len(s.Calls()); got != 0 || calls != 0 {
		t.Errorf("after Reset: count %d, %d calls, want none", got, calls)
	}
}

func TestFaultsMayChangeWhileCallsRun(t *testing.T) {
	s := sts.New(sts.Config{})
	url := serve(t, s)
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	var done sync.WaitGroup
	for range 4 {
		done.Go(func() {
			for range 25 {
				r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, nil)
				if err != nil {
					t.Error(err)
					return
				}
				if resp, err := client.Do(r); err == nil { // an error is one of the faults
					_ = resp.Body.Close()
				}
			}
		})
	}
	for i := range 100 {
		s.SetFaults(sts.Faults{Outage: sts.Outage(i % 5), Throttle: float64(i), Deny: []string{reader}})
	}
	s.SetFaults(sts.Faults{})
	done.Wait()
	if got := s.Faults().Outage; got != sts.NoOutage {
		t.Errorf("Faults().Outage = %d, want none", got)
	}
}

// serve runs the server on loopback for the test's life and returns its URL.
func serve(t *testing.T, s *sts.Server) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error)
	go func() { served <- s.Serve(t.Context(), ln) }()
	t.Cleanup(func() { // the test's context has ended
		if err := <-served; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	return "http://" + ln.Addr().String()
}
