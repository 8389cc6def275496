package imds_test

import (
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"pod2role/sandbox/imds"
)

// serve runs the server on loopback for the test's life and returns its URL.
func serve(t *testing.T, s *imds.Server) string {
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

// get returns the status of an answer.
func get(t *testing.T, url string) (int, error) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(r)
	if err != nil {
		return 0, err
	}
	return resp.StatusCode, resp.Body.Close()
}

func TestFaultsChangeTheAnswers(t *testing.T) {
	tests := []struct {
		name   string
		faults imds.Faults
		want   []int // statuses of successive requests
	}{
		{"none", imds.Faults{}, []int{200, 200}},
		{"unavailable", imds.Faults{Outage: imds.Unavailable}, []int{503, 503}},
		{"early boot", imds.Faults{EarlyBoot: true}, []int{401, 401}},
		{"throttled", imds.Faults{Throttle: 0.001}, []int{200, 503, 503}},
		{"throttled with its own status", imds.Faults{Throttle: 0.001, ThrottleStatus: 429}, []int{200, 429}},
		{"hook", imds.Faults{Hook: func(h imds.Hit) int { return map[string]int{"GET": 418}[h.Method] }}, []int{418}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := imds.New(imds.Config{})
			s.SetFaults(tt.faults)
			var got []int
			for range tt.want {
				got = append(got, ask(t, s, "GET", "/latest/meta-data/").Code)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("statuses (-want +got):\n%s", diff)
			}
			s.SetFaults(imds.Faults{})
			if resp := ask(t, s, "GET", "/latest/meta-data/"); resp.Code != 200 {
				t.Errorf("after the faults: %d, want 200", resp.Code)
			}
		})
	}
}

func TestClosedOutageClosesTheConnectionWithoutAnAnswer(t *testing.T) {
	s := imds.New(imds.Config{})
	url := serve(t, s)
	s.SetFaults(imds.Faults{Outage: imds.Closed})
	if status, err := get(t, url+"/latest/meta-data/"); err == nil {
		t.Errorf("answered %d, want a closed connection", status)
	}
	if hits := s.Hits(); len(hits) != 1 || hits[0].Status != 0 {
		t.Errorf("hits %+v, want one that was not answered", hits)
	}
	s.SetFaults(imds.Faults{})
	if status, err := get(t, url+"/latest/meta-data/"); err != nil || status != 200 {
		t.Errorf("after the outage: %d, %v, want 200", status, err)
	}
}

func TestLatencyDelaysTheAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := imds.New(imds.Config{})
		s.SetFaults(imds.Faults{
			Latency:   time.Second,
			LatencyOf: func(h imds.Hit) time.Duration { return time.Duration(len(h.Path)) * time.Minute },
		})
		start := time.Now()
		ask(t, s, "GET", "/latest")
		if got, want := time.Since(start), 7*time.Minute+time.Second; got != want {
			t.Errorf("answered after %s, want %s", got, want)
		}
	})
}

func TestWaitReturnsAtTheHitAndNotAtItsAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := imds.New(imds.Config{})
		s.SetFaults(imds.Faults{Latency: time.Hour})
		start := time.Now()
		answered := make(chan struct{})
		go func() {
			defer close(answered)
			ask(t, s, "GET", "/latest/meta-data/")
			ask(t, s, "GET", "/latest/user-data")
		}()
		hit, err := s.Wait(t.Context(), 1, func(h imds.Hit) bool { return h.Secret })
		if err != nil || hit.Path != "/latest/user-data" || hit.Status != 0 || time.Since(start) != time.Hour {
			t.Errorf("Wait: %+v, %v after %s, want the second hit when it arrived", hit, err, time.Since(start))
		}
		<-answered
		if hits := s.Hits(); len(hits) != 2 || hits[1].Status != 404 {
			t.Errorf("hits %+v, want two, the second answered with 404", hits)
		}
	})
}

func TestSecretHitsAreKeptHoweverManyOthersCome(t *testing.T) {
	s := imds.New(imds.Config{MaxHits: 8})
	ask(t, s, "GET", "/latest/meta-data/iam/info")
	for range 100 {
		ask(t, s, "GET", "/latest/meta-data/")
	}
	if hits, secret := len(s.Hits()), len(s.SecretHits()); hits > 8 || secret != 1 {
		t.Errorf("%d hits and %d secret ones kept, want at most 8 and 1", hits, secret)
	}
	s.Reset()
	if hits, secret := len(s.Hits()), len(s.SecretHits()); hits != 0 || secret != 0 {
		t.Errorf("after Reset %d hits and %d secret ones, want none", hits, secret)
	}
}
