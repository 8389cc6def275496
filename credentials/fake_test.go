package credentials_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pod2role/credentials"
)

// fake is an STS that lives in the test's own time.
type fake struct {
	mu       sync.Mutex
	latency  time.Duration    // before each answer
	lifetime time.Duration    // of sessions; 0: as asked
	hang     bool             // answer nothing
	fail     error            // for every role; nil: none
	failRole map[string]error // :: role ARN -> error
	calls    []call
}

type call struct {
	at  time.Time
	key credentials.Key
}

// set changes the fake while it is in use.
func (f *fake) set(change func(*fake)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f)
}

// made returns the calls so far.
func (f *fake) made() []call {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.calls)
}

// count returns how many calls were made for the role; for "", how many in all.
func (f *fake) count(role string) int {
	n := 0
	for _, c := range f.made() {
		if role == "" || c.key.RoleARN == role {
			n++
		}
	}
	return n
}

func (f *fake) assume(ctx context.Context, key credentials.Key, asked time.Duration) (*credentials.Session, error) {
	f.mu.Lock()
	f.calls = append(f.calls, call{time.Now(), key})
	number, latency, hang := len(f.calls), f.latency, f.hang
	f.mu.Unlock()
	if hang {
		latency = 1000 * time.Hour
	}
	select {
	case <-time.After(latency):
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fail != nil {
		return nil, f.fail
	}
	if err := f.failRole[key.RoleARN]; err != nil {
		return nil, err
	}
	if f.lifetime != 0 {
		asked = f.lifetime
	}
	now := time.Now()
	return &credentials.Session{
		Key: key, AccessKeyID: fmt.Sprintf("ASIA%016d", number), SecretAccessKey: "hush-secret", Token: "hush-token",
		Obtained: now, Expiration: now.Add(asked).Round(0), RequestID: fmt.Sprint("request-", number),
	}, nil
}

// start runs a cache over the fake until the test ends. Without a start-up jitter, lest tests be about that.
func (f *fake) start(t *testing.T, cfg credentials.Config) *credentials.Cache {
	t.Helper()
	cfg.Assume = f.assume
	if cfg.StartJitter == 0 {
		cfg.StartJitter = -1
	}
	c, err := credentials.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- c.Run(t.Context()) }()
	t.Cleanup(func() {
		if err := <-done; err != nil {
			t.Errorf("got error %v when Run ended, want none", err)
		}
	})
	return c
}

func role(name string) credentials.Key {
	return credentials.Key{RoleARN: "arn:aws:iam::111122223333:role/" + name, Name: "pod2role-node"}
}

var (
	errRefused = &credentials.Error{Kind: credentials.Refused, Code: "AccessDenied", RequestID: "r-1", Err: errors.New("user is not authorized to perform: sts:AssumeRole")}
	errDown    = &credentials.Error{Kind: credentials.Unavailable, Code: "ServiceUnavailable"}
	errSlow    = &credentials.Error{Kind: credentials.Throttled, Code: "Throttling", Err: errors.New("rate exceeded")}
)

// get returns a session that must be there, and how much life it has left.
func get(t *testing.T, c *credentials.Cache, key credentials.Key) (*credentials.Session, time.Duration) {
	t.Helper()
	s, err := c.Get(t.Context(), key)
	if err != nil {
		t.Fatalf("got error %v, want a session", err)
	}
	return s, time.Until(s.Expiration)
}

// refusal returns the error that Get must give.
func refusal(t *testing.T, c *credentials.Cache, key credentials.Key) *credentials.Error {
	t.Helper()
	s, err := c.Get(t.Context(), key)
	if s != nil || err == nil {
		t.Fatalf("got session %v, want an error", s)
	}
	e, ok := errors.AsType[*credentials.Error](err)
	if !ok {
		t.Fatalf("got error %v of type %T, want an *Error in its chain", err, err)
	}
	return e
}

// bubble runs a test in its own time.
func bubble(name string, t *testing.T, test func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
}
