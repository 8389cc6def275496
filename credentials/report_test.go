package credentials_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/sirupsen/logrus"
	"github.com/sirupsen/logrus/hooks/test"

	"pod2role/credentials"
)

func contextWithTimeout(t *testing.T, d time.Duration) (context.Context, context.CancelFunc) {
	t.Helper()
	return context.WithTimeout(t.Context(), d)
}

func TestChangesAreToldOnceEach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		var mu sync.Mutex
		var told []string
		c := f.start(t, credentials.Config{OnChange: func(key credentials.Key, err error) {
			kind := "right"
			if e, ok := errors.AsType[*credentials.Error](err); ok {
				kind = e.Kind.String() + " " + e.Code
				if !strings.HasPrefix(err.Error(), "assuming role "+key.RoleARN+": ") {
					t.Errorf("got error %v, want one that names the role", err)
				}
			}
			mu.Lock()
			defer mu.Unlock()
			told = append(told, kind)
		}})
		c.Refer("pod", role("reader"))
		phase := func(err error) {
			f.set(func(f *fake) { f.fail = err })
			time.Sleep(3 * time.Hour)
		}
		phase(nil) // that all is well from the start is no news
		phase(errDown)
		phase(nil) // nor is trouble that passes
		phase(errRefused)
		phase(&credentials.Error{Kind: credentials.Invalid, Code: "ValidationError"})
		phase(errDown)
		phase(&credentials.Error{Kind: credentials.OwnIdentity, Code: "ExpiredToken"})
		phase(nil)
		want := []string{"refused AccessDenied", "invalid ValidationError", "own-identity ExpiredToken", "right"}
		mu.Lock()
		defer mu.Unlock()
		if diff := cmp.Diff(want, told); diff != "" {
			t.Errorf("changes told (-want +got):\n%s", diff)
		}
	})
}

func TestStatesShowWhatIsKnownAndNoSecret(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, hook := test.NewNullLogger()
		log.SetLevel(logrus.DebugLevel)
		f := &fake{failRole: map[string]error{role("broken").RoleARN: errRefused}}
		c := f.start(t, credentials.Config{Log: logrus.NewEntry(log)})
		key := role("reader")
		key.ExternalID = "very-secret-partner"
		c.Refer("a", key)
		c.Refer("b", key)
		get(t, c, key)
		refusal(t, c, role("broken"))
		time.Sleep(10 * time.Second)
		f.set(func(f *fake) { f.hang = true })
		ctx, cancel := contextWithTimeout(t, time.Second)
		defer cancel()
		go func() { _, _ = c.Get(ctx, role("slow")) }()
		synctest.Wait()

		states := c.States()
		if len(states) != 3 || !slices.IsSortedFunc(states, func(a, b credentials.State) int { return strings.Compare(a.RoleARN, b.RoleARN) }) {
			t.Fatalf("got states %+v, want 3 in order", states)
		}
		broken, reader, slow := states[0], states[1], states[2]
		if broken.Failures != 1 || broken.LastKind != "refused" || !strings.Contains(broken.LastError, "AccessDenied") || broken.AccessKeyID != "" {
			t.Errorf("got %+v, want the refusal", broken)
		}
		if reader.Referrers != 2 || reader.ExternalID != "ve***" || reader.AgeSeconds != 10 || reader.LeftSeconds != 3590 || reader.AccessKeyID == "" || reader.NextCall.IsZero() {
			t.Errorf("got %+v, want a session that is 10 seconds old", reader)
		}
		if !slow.Calling || slow.Waiters != 1 {
			t.Errorf("got %+v, want a call under way and somebody waiting", slow)
		}

		shown, err := json.Marshal(states)
		if err != nil {
			t.Fatal(err)
		}
		everything := string(shown) + fmt.Sprintf("%+v %#v", states, states)
		for _, entry := range hook.AllEntries() {
			line, err := entry.String()
			if err != nil {
				t.Fatal(err)
			}
			everything += line
		}
		for _, secret := range []string{"hush", "very-secret-partner"} {
			if strings.Contains(everything, secret) {
				t.Errorf("views and log lines hold %q, want no secret", secret)
			}
		}
		if len(hook.AllEntries()) == 0 {
			t.Errorf("got no log lines, want some to look at")
		}
	})
}

func TestMetricsCountWithBoundedLabels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registry := prometheus.NewRegistry()
		f := &fake{}
		c := f.start(t, credentials.Config{Registerer: registry})
		c.Refer("pod", role("reader"))
		time.Sleep(time.Second)
		get(t, c, role("reader"))
		get(t, c, role("reader"))
		for code, kind := range map[string]credentials.Kind{"AccessDenied": credentials.Refused, "SomethingNew": credentials.Refused} {
			f.set(func(f *fake) { f.fail = &credentials.Error{Kind: kind, Code: code} })
			refusal(t, c, role(code))
		}
		want := `
# HELP pod2role_credentials_fetches_total Sessions asked of STS, by why (request: a pod waits; renewal; prefetch) and outcome (ok, or the kind of error).
# TYPE pod2role_credentials_fetches_total counter
pod2role_credentials_fetches_total{outcome="ok",reason="prefetch"} 1
pod2role_credentials_fetches_total{outcome="refused",reason="request"} 2
# HELP pod2role_credentials_sessions Sessions held.
# TYPE pod2role_credentials_sessions gauge
pod2role_credentials_sessions 1
# HELP pod2role_credentials_sts_calls_total Calls to STS by outcome: ok, the AWS error code, other for a code that is not well known, none for no answer.
# TYPE pod2role_credentials_sts_calls_total counter
pod2role_credentials_sts_calls_total{code="AccessDenied"} 1
pod2role_credentials_sts_calls_total{code="ok"} 1
pod2role_credentials_sts_calls_total{code="other"} 1
# HELP pod2role_credentials_unserved_total Requests for a session that were answered with an error, by its kind.
# TYPE pod2role_credentials_unserved_total counter
pod2role_credentials_unserved_total{kind="refused"} 2
`
		if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "pod2role_credentials_fetches_total",
			"pod2role_credentials_sessions", "pod2role_credentials_sts_calls_total", "pod2role_credentials_unserved_total"); err != nil {
			t.Error(err)
		}
		if problems, err := testutil.GatherAndLint(registry); err != nil || len(problems) > 0 {
			t.Errorf("got problems %v, error %v, want none", problems, err)
		}
	})
}
