package kubeapi_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pod2role/sandbox/kubeapi"
)

// answer is what a handler wrote so far, to be read while it writes.
type answer struct {
	mu     sync.Mutex
	header http.Header
	body   strings.Builder
}

func (a *answer) Header() http.Header { return a.header }
func (a *answer) WriteHeader(int)     {}
func (a *answer) Flush()              {}
func (a *answer) Write(p []byte) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.body.Write(p)
}

// ask has the server answer a GET, in a bubble, and returns the answer so far.
func ask(t *testing.T, server http.Handler, target string) (body func() string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	a := &answer{header: http.Header{}}
	done := make(chan struct{})
	go func() {
		defer close(done)
		server.ServeHTTP(a, httptest.NewRequestWithContext(ctx, http.MethodGet, target, nil))
	}()
	t.Cleanup(func() { cancel(); <-done })
	return func() string {
		synctest.Wait()
		a.mu.Lock()
		defer a.mu.Unlock()
		return a.body.String()
	}
}

func TestLagHoldsChangesBackButNotReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := kubeapi.New(kubeapi.Config{})
		watch := ask(t, server, "/api/v1/pods?watch=true&timeoutSeconds=60")
		watch()
		server.SetWatchLag(2 * time.Second)
		check(t, server.Apply(newPod("a")))
		if got := ask(t, server, "/api/v1/namespaces/shop/pods/a")(); !strings.Contains(got, `"name":"a"`) {
			t.Errorf("get answers %q, want the pod", got)
		}
		time.Sleep(2*time.Second - time.Nanosecond)
		if got := watch(); got != "" {
			t.Errorf("the watch told %q too early", got)
		}
		time.Sleep(time.Nanosecond)
		if got := watch(); !strings.Contains(got, `"ADDED"`) {
			t.Errorf("after the lag the watch told %q, want the pod added", got)
		}
	})
}

func TestBookmarksComeByTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := kubeapi.New(kubeapi.Config{BookmarkInterval: time.Minute})
		watch := ask(t, server, "/api/v1/pods?watch=true&allowWatchBookmarks=true&resourceVersion=1000&timeoutSeconds=100")
		plain := ask(t, server, "/api/v1/pods?watch=true&resourceVersion=1000&timeoutSeconds=100")
		time.Sleep(time.Minute)
		if got := watch(); strings.Count(got, `"BOOKMARK"`) != 1 {
			t.Errorf("after a minute the watch told %q, want a bookmark", got)
		}
		if got := plain(); got != "" {
			t.Errorf("a watch that allows no bookmarks told %q", got)
		}
		time.Sleep(40 * time.Second)
		synctest.Wait()
		if open := server.Count(kubeapi.Watching("pods")); open != 0 {
			t.Errorf("%d watches outlive their time-out", open)
		}
	})
}

func TestLatencyAndSilenceDelayAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := kubeapi.New(kubeapi.Config{})
		server.SetLatency(time.Second)
		slow := ask(t, server, "/version")
		time.Sleep(time.Second - time.Nanosecond)
		if got := slow(); got != "" {
			t.Errorf("answered %q too early", got)
		}
		time.Sleep(time.Nanosecond)
		if got := slow(); got == "" {
			t.Error("not answered after the latency")
		}
		server.SetOutage(kubeapi.Hang)
		silent := ask(t, server, "/version")
		time.Sleep(time.Hour)
		if got := silent(); got != "" {
			t.Errorf("answered %q during the outage", got)
		}
		server.SetOutage(kubeapi.Up)
		time.Sleep(time.Second)
		if got := silent(); got == "" {
			t.Error("not answered after the outage")
		}
	})
}

func FuzzAnyRequestIsAnswered(f *testing.F) {
	f.Add("GET", "/api/v1/pods?limit=1&continue=e30", "application/json", "")
	f.Add("GET", "/api/v1/namespaces/a/pods/b?watch=1&resourceVersion=1", "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1", "")
	f.Add("POST", "/apis/events.k8s.io/v1/namespaces/a/events", "*/*", `{"kind":"Event","apiVersion":"events.k8s.io/v1","metadata":{"name":"x"}}`)
	f.Add("PATCH", "/api/v1/nodes/n1", "", `{"spec":{"taints":[{"key":"a"}]}}`)
	f.Add("GET", "/apis//", "application/json;q", "")
	f.Fuzz(func(t *testing.T, method, target, accept, body string) {
		server := kubeapi.New(kubeapi.Config{})
		check(t, server.Apply(newPod("a"), newPod("b")))
		// Errors of the test, not of the server: what net/http would not let in.
		r, err := http.NewRequestWithContext(t.Context(), method, "http://sandbox"+target, strings.NewReader(body))
		if err != nil || !strings.HasPrefix(r.URL.Path, "/") {
			t.Skip()
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		r.Header.Set("Accept", accept)
		r.Header.Set("Content-Type", "application/merge-patch+json")
		answer := httptest.NewRecorder()
		server.ServeHTTP(answer, r.WithContext(ctx))
		if answer.Code >= http.StatusInternalServerError && answer.Code != http.StatusGatewayTimeout {
			t.Errorf("%s %q answers %d: %s", method, target, answer.Code, answer.Body)
		}
	})
}
