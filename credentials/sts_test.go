package credentials_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"pod2role/credentials"
	"pod2role/sandbox/imds"
	"pod2role/sandbox/sts"
)

const (
	region  = "eu-west-1"
	ownKey  = "AKIAIOSFODNN7EXAMPLE"
	hopRole = "arn:aws:iam::111122223333:role/first-hop"
)

// isolate keeps the SDK from every endpoint and every source of credentials but those on loopback.
func isolate(t *testing.T, server http.Handler) {
	t.Helper()
	for _, name := range []string{
		"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION",
		"AWS_ROLE_ARN", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_FULL_URI",
		"AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
	} {
		t.Setenv(name, "")
	}
	t.Setenv("AWS_CONFIG_FILE", "/dev/null")
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	t.Setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://127.0.0.1:1")
	t.Setenv("AWS_ENDPOINT_URL_STS", serve(t, server))
}

// user makes the daemon an IAM user, known by the environment.
func user(t *testing.T) {
	t.Helper()
	t.Setenv("AWS_ACCESS_KEY_ID", ownKey)
	t.Setenv("AWS_SECRET_ACCESS_KEY", "test")
}

func serve(t *testing.T, h http.Handler) string {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return server.URL
}

func newSTS(t *testing.T, cfg credentials.STSConfig) *credentials.STS {
	t.Helper()
	s, err := credentials.NewSTS(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// wantError returns err as the *Error that it must be, of the kind that it must have.
func wantError(t *testing.T, err error, kind credentials.Kind) *credentials.Error {
	t.Helper()
	e, ok := errors.AsType[*credentials.Error](err)
	if !ok || e.Kind != kind {
		t.Fatalf("got error %v, want one of kind %s", err, kind)
	}
	return e
}

func TestAssumeAsksForAllThatTheKeySays(t *testing.T) {
	server := sts.New(sts.Config{Region: region})
	isolate(t, server)
	user(t)
	s := newSTS(t, credentials.STSConfig{Region: region})
	key := role("reader")
	key.ExternalID, key.Tags = "partner-1", `[{"Key":"namespace","Value":"shop"},{"Key":"pod","Value":""}]`
	session, err := s.Assume(t.Context(), key, 30*time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	got, err := sts.DecodeCredentials(session.AccessKeyID, session.SecretAccessKey.Reveal(), session.Token.Reveal())
	if err != nil {
		t.Fatal(err)
	}
	want := sts.Session{RoleARN: key.RoleARN, Name: key.Name, ExternalID: key.ExternalID, Tags: key.Tags, Serial: 1, Expires: session.Expiration.Unix()}
	if got != want {
		t.Errorf("got credentials of %+v, want those of %+v", got, want)
	}
	if session.Key != key || session.RequestID == "" || time.Since(session.Obtained) > time.Minute {
		t.Errorf("got session %+v, want it to name its key, its request and when it was obtained", session)
	}
	if left := time.Until(session.Expiration); left > 30*time.Minute || left < 29*time.Minute {
		t.Errorf("got %s of life, want 30m", left)
	}
	if call := server.Calls()[0]; call.Region != region || !strings.Contains(call.UserAgent, "pod2role") {
		t.Errorf("got a call signed for %q by %q, want region and program", call.Region, call.UserAgent)
	}
}

func TestAssumeTellsErrorsByCodeAndNotByStatus(t *testing.T) {
	for _, tt := range []struct {
		code   string
		status int
		kind   credentials.Kind
	}{
		{"AccessDenied", 403, credentials.Refused},
		{"AccessDenied", 400, credentials.Refused},
		{"ValidationError", 400, credentials.Invalid},
		{"PackedPolicyTooLarge", 400, credentials.Invalid},
		{"MalformedPolicyDocument", 400, credentials.Invalid},
		{"RegionDisabledException", 403, credentials.Invalid},
		{"Throttling", 400, credentials.Throttled},
		{"ThrottlingException", 403, credentials.Throttled},
		{"RequestLimitExceeded", 503, credentials.Throttled},
		{"ExpiredToken", 403, credentials.OwnIdentity},
		{"ExpiredTokenException", 400, credentials.OwnIdentity},
		{"InvalidClientTokenId", 403, credentials.OwnIdentity},
		{"SignatureDoesNotMatch", 403, credentials.OwnIdentity},
		{"IDPCommunicationError", 400, credentials.Unavailable},
		{"ServiceUnavailable", 503, credentials.Unavailable},
		{"InternalFailure", 500, credentials.Unavailable},
		{"SomethingNobodyKnows", 403, credentials.Unavailable},
		{"SomethingNobodyKnows", 400, credentials.Unavailable},
	} {
		t.Run(tt.code, func(t *testing.T) {
			server := sts.New(sts.Config{})
			server.SetFaults(sts.Faults{Hook: func(context.Context, sts.Call) *sts.Error {
				return &sts.Error{Code: tt.code, Message: "so it says", Status: tt.status}
			}})
			isolate(t, server)
			user(t)
			_, err := newSTS(t, credentials.STSConfig{Region: region}).Assume(t.Context(), role("reader"), time.Hour)
			e := wantError(t, err, tt.kind)
			if e.Code != tt.code || e.RequestID == "" || e.Err == nil || e.Err.Error() != "so it says" {
				t.Errorf("got %+v, want code, request and message", e)
			}
			if n := server.Count(""); n != 1 {
				t.Errorf("got %d calls, want 1: it is the cache that repeats", n)
			}
		})
	}
}

func TestAssumeTakesWhatIsNoAnswerForOneThatMayCome(t *testing.T) {
	for name, h := range map[string]http.HandlerFunc{
		"connection closed": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"forbidden page":    func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "<html>no</html>", http.StatusForbidden) },
		"empty answer":      func(http.ResponseWriter, *http.Request) {},
		"not XML":           func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("{}")) },
		"no credentials": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte(`<AssumeRoleResponse><AssumeRoleResult></AssumeRoleResult></AssumeRoleResponse>`))
		},
		"half of the credentials": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte(`<AssumeRoleResponse><AssumeRoleResult><Credentials><AccessKeyId>ASIAX</AccessKeyId></Credentials></AssumeRoleResult></AssumeRoleResponse>`))
		},
	} {
		t.Run(name, func(t *testing.T) {
			isolate(t, h)
			user(t)
			_, err := newSTS(t, credentials.STSConfig{Region: region}).Assume(t.Context(), role("reader"), time.Hour)
			wantError(t, err, credentials.Unavailable)
		})
	}
}

func TestAssumeHonoursRetryAfter(t *testing.T) {
	isolate(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "7")
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = w.Write([]byte(`<ErrorResponse><Error><Code>Throttling</Code><Message>Rate exceeded</Message></Error></ErrorResponse>`))
	}))
	user(t)
	_, err := newSTS(t, credentials.STSConfig{Region: region}).Assume(t.Context(), role("reader"), time.Hour)
	if e := wantError(t, err, credentials.Throttled); e.RetryAfter != 7*time.Second {
		t.Errorf("got %s to wait, want 7s", e.RetryAfter)
	}
}

func TestAssumeEndsWithItsContext(t *testing.T) {
	server := sts.New(sts.Config{})
	server.SetFaults(sts.Faults{Outage: sts.Hanging})
	isolate(t, server)
	user(t)
	s := newSTS(t, credentials.STSConfig{Region: region})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		_, _ = server.Wait(t.Context(), 1, nil)
		cancel()
	}()
	_, err := s.Assume(ctx, role("reader"), time.Hour)
	if wantError(t, err, credentials.Unavailable); !errors.Is(err, context.Canceled) {
		t.Errorf("got error %v, want that the context ended", err)
	}
}

func TestAssumeRefusesTagsThatItCannotRead(t *testing.T) {
	server := sts.New(sts.Config{})
	isolate(t, server)
	user(t)
	key := role("reader")
	key.Tags = `{"Key":`
	_, err := newSTS(t, credentials.STSConfig{Region: region}).Assume(t.Context(), key, time.Hour)
	wantError(t, err, credentials.Invalid)
	if n := server.Count(""); n != 0 {
		t.Errorf("got %d calls, want none", n)
	}
}

func TestOwnCredentialsComeFromTheMetadataService(t *testing.T) {
	node := imds.New(imds.Config{Region: region})
	server := sts.New(sts.Config{Roles: map[string]sts.Role{role("reader").RoleARN: {Trusts: []string{node.RoleARN()}}}})
	isolate(t, server)
	s := newSTS(t, credentials.STSConfig{MetadataEndpoint: serve(t, node)})
	if err := s.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Assume(t.Context(), role("reader"), time.Hour); err != nil {
		t.Fatal(err)
	}
	if call := server.Calls()[0]; call.Region != region || call.CallerRoleARN != node.RoleARN() {
		t.Errorf("got a call by %q for %q, want the node's role and region", call.CallerRoleARN, call.Region)
	}
}

func TestMissingIdentityIsNotTheRolesFault(t *testing.T) {
	server := sts.New(sts.Config{})
	isolate(t, server)
	for name, cfg := range map[string]credentials.STSConfig{
		"no credentials": {Region: region},
		"no region":      {},
	} {
		_, err := newSTS(t, cfg).Assume(t.Context(), role("reader"), time.Hour)
		if wantError(t, err, credentials.OwnIdentity); server.Count("") != 0 {
			t.Errorf("%s: got %d calls, want none", name, server.Count(""))
		}
	}
}

func TestMissingIdentityMayComeLater(t *testing.T) {
	isolate(t, sts.New(sts.Config{}))
	s := newSTS(t, credentials.STSConfig{})
	_, err := s.Assume(t.Context(), role("reader"), time.Hour)
	wantError(t, err, credentials.OwnIdentity)
	user(t)
	t.Setenv("AWS_REGION", region)
	if _, err := s.Assume(t.Context(), role("reader"), time.Hour); err != nil {
		t.Errorf("got error %v once there is an identity, want none", err)
	}
}

func TestExpiredIdentityIsRefreshedAndTheCallRepeatedOnce(t *testing.T) {
	for _, tt := range []struct {
		name    string
		renewed bool // the metadata service has newer credentials
		calls   int
		wantErr bool
	}{
		{"newer ones are there", true, 2, false},
		{"no newer ones are there", false, 1, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			node := &instance{changes: tt.renewed}
			server := sts.New(sts.Config{})
			server.SetFaults(sts.Faults{Hook: func(_ context.Context, call sts.Call) *sts.Error {
				if call.AccessKeyID == "ASIAINSTANCEKEY00001" {
					return &sts.Error{Code: "ExpiredToken", Message: "expired"}
				}
				return nil
			}})
			isolate(t, server)
			s := newSTS(t, credentials.STSConfig{Region: region, MetadataEndpoint: serve(t, node)})
			_, err := s.Assume(t.Context(), role("reader"), time.Hour)
			if (err != nil) != tt.wantErr || server.Count("") != tt.calls {
				t.Errorf("got error %v and %d calls, want error: %v and %d calls", err, server.Count(""), tt.wantErr, tt.calls)
			}
			if tt.wantErr {
				wantError(t, err, credentials.OwnIdentity)
			}
		})
	}
}

// instance is a metadata service.
type instance struct {
	changes bool // its credentials, after they were read once
	reads   atomic.Int64
}

func (i *instance) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.Method == http.MethodPut:
		w.Header().Set("X-Aws-Ec2-Metadata-Token-Ttl-Seconds", "300")
		_, _ = w.Write([]byte("token"))
	case strings.HasSuffix(r.URL.Path, "/security-credentials/"):
		_, _ = w.Write([]byte("node-role"))
	default:
		serial := "1"
		if i.reads.Add(1) > 1 && i.changes {
			serial = "2"
		}
		expiration := time.Now().Add(6 * time.Hour).UTC().Format(time.RFC3339)
		_, _ = w.Write([]byte(`{"Code":"Success","AccessKeyId":"ASIAINSTANCEKEY0000` + serial +
			`","SecretAccessKey":"test","Token":"token","Expiration":"` + expiration + `"}`))
	}
}

func TestFirstHopAssumesItsRoleFirst(t *testing.T) {
	server := sts.New(sts.Config{Roles: map[string]sts.Role{
		hopRole:                {MaxSessionDuration: time.Hour},
		role("reader").RoleARN: {Trusts: []string{hopRole}},
	}})
	isolate(t, server)
	user(t)
	s := newSTS(t, credentials.STSConfig{Region: region, AssumeRoleARN: hopRole, SessionName: "node-1"})
	for range 2 { // more than an hour is capped, since the roles are chained
		if _, err := s.Assume(t.Context(), role("reader"), 12*time.Hour); err != nil {
			t.Fatal(err)
		}
	}
	calls := server.Calls()
	if len(calls) != 3 || calls[0].RoleARN != hopRole || calls[0].SessionName != "node-1" || calls[1].CallerRoleARN != hopRole {
		t.Errorf("got calls %+v, want one for the first role, then two with its credentials", calls)
	}
	for _, call := range calls {
		if call.Duration != time.Hour {
			t.Errorf("got %s asked for of %s, want 1h", call.Duration, call.RoleARN)
		}
	}
}

func TestRefusedFirstHopIsNotTheRolesFault(t *testing.T) {
	server := sts.New(sts.Config{})
	server.SetFaults(sts.Faults{Deny: []string{hopRole}})
	isolate(t, server)
	user(t)
	s := newSTS(t, credentials.STSConfig{Region: region, AssumeRoleARN: hopRole})
	_, err := s.Assume(t.Context(), role("reader"), time.Hour)
	if e := wantError(t, err, credentials.OwnIdentity); e.Code != "AccessDenied" {
		t.Errorf("got code %q, want AccessDenied", e.Code)
	}
	server.SetFaults(sts.Faults{})
	if _, err := s.Assume(t.Context(), role("reader"), time.Hour); err != nil {
		t.Errorf("got error %v after it was allowed, want none", err)
	}
}

func TestCacheServesWhatSTSGives(t *testing.T) {
	server := sts.New(sts.Config{Lifetime: 40 * time.Second})
	server.SetFaults(sts.Faults{Throttle: 2}) // the third call within a second is throttled, and repeated
	isolate(t, server)
	user(t)
	c, err := credentials.New(credentials.Config{Assume: newSTS(t, credentials.STSConfig{Region: region}).Assume})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	for _, name := range []string{"reader", "writer", "lister"} {
		session, left := get(t, c, role(name))
		if got, err := sts.Decode(session.Token.Reveal()); err != nil || got.RoleARN != role(name).RoleARN || left > 40*time.Second {
			t.Errorf("got session of %+v with %s left, error %v, want one of %s", got, left, err, name)
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
