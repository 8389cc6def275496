package proxy

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"pod2role/credentials"
	"pod2role/mappings"
)

const listPath = "/latest/meta-data/iam/security-credentials"

func TestEveryVersionAndBothSlashFormsAnswerAlike(t *testing.T) {
	_, addr := start(t, testConfig("http://127.0.0.1:1"))
	session := testSession("reader")
	for _, version := range []string{"latest", "1.0", "2021-03-23", "anything"} {
		for _, tt := range []struct{ path, contains string }{
			{"/meta-data/iam/security-credentials", "reader"},
			{"/meta-data/iam/security-credentials/reader", session.AccessKeyID},
			{"/meta-data/iam/security-credentials-extended", "reader"},
			{"/meta-data/iam/security-credentials-extended/reader", session.AccessKeyID},
			{"/meta-data/iam/info", "instance-profile/reader"},
		} {
			for _, slash := range []string{"", "/"} {
				path := "/" + version + tt.path + slash
				got := ask(t, readerAddr, addr, "GET", path)
				if got.status != http.StatusOK || !strings.Contains(got.body, tt.contains) || got.header.Get("Location") != "" {
					t.Errorf("%s: status %d, body %q", path, got.status, got.body)
				}
			}
		}
	}
}

func TestAnswersHaveTheBytesAndHeadersOfEC2(t *testing.T) {
	obtained := time.Date(2026, 3, 4, 5, 6, 7, 890, time.FixedZone("", 3600))
	session := &credentials.Session{
		Key:         credentials.Key{RoleARN: "arn:aws-cn:iam::123456789012:role/team/reader"},
		AccessKeyID: "ASIAEXAMPLE", SecretAccessKey: `a/b+c"<&>`, Token: "tok/en==",
		Obtained: obtained, Expiration: time.Date(2999, 1, 2, 3, 4, 5, 999, time.UTC),
	}
	cfg := testConfig("http://127.0.0.1:1")
	cfg.Decide = func(context.Context, netip.Addr, int) *mappings.Decision {
		d := allowedDecision("team/reader")
		d.Session.RoleARN = session.Key.RoleARN
		return d
	}
	cfg.Credentials = func(context.Context, credentials.Key) (*credentials.Session, error) { return session, nil }
	_, addr := start(t, cfg)

	const legacy = `{
  "Code" : "Success",
  "LastUpdated" : "2026-03-04T04:06:07Z",
  "Type" : "AWS-HMAC",
  "AccessKeyId" : "ASIAEXAMPLE",
  "SecretAccessKey" : "a/b+c\"<&>",
  "Token" : "tok/en==",
  "Expiration" : "2999-01-02T03:04:05Z"`
	for _, tt := range []struct{ path, want string }{
		{listPath + "/", "team/reader"},
		{listPath + "/team/reader", legacy + "\n}"},
		{listPath + "-extended/", "team/reader"},
		{listPath + "-extended/team/reader", legacy + ",\n  \"AccountId\" : \"123456789012\"\n}"},
	} {
		t.Run(tt.path, func(t *testing.T) {
			got := ask(t, readerAddr, addr, "GET", tt.path)
			if diff := cmp.Diff(tt.want, got.body); diff != "" {
				t.Errorf("body (-want +got):\n%s", diff)
			}
			got.header.Del("Date")
			length := got.header.Get("Content-Length")
			want := http.Header{"Server": {"EC2ws"}, "Content-Type": {"text/plain"}, "Content-Length": {length}}
			if diff := cmp.Diff(want, got.header); diff != "" || length == "" {
				t.Errorf("header (-want +got):\n%s", diff)
			}

			head := ask(t, readerAddr, addr, "HEAD", tt.path)
			if head.status != http.StatusOK || head.body != "" || head.header.Get("Content-Length") != length {
				t.Errorf("HEAD: %+v", head)
			}
		})
	}

	var info map[string]string
	if err := json.Unmarshal([]byte(ask(t, readerAddr, addr, "GET", "/latest/meta-data/iam/info").body), &info); err != nil {
		t.Fatal(err)
	}
	if info["Code"] != "Success" || info["InstanceProfileArn"] != "arn:aws-cn:iam::123456789012:instance-profile/team/reader" ||
		len(info["InstanceProfileId"]) != 21 || !strings.HasPrefix(info["InstanceProfileId"], "AIPA") {
		t.Errorf("info: %+v", info)
	}
	if _, err := time.Parse(timeFormat, info["LastUpdated"]); err != nil {
		t.Error(err)
	}
}

func TestErrorPagesHaveTheSizeOfEC2s(t *testing.T) {
	if n := len(errorPage(http.StatusUnauthorized)); n != 343 {
		t.Errorf("the page for 401 has %d bytes, not 343", n)
	}
}

func TestAPodGetsNoRoleButItsOwn(t *testing.T) {
	_, addr := start(t, testConfig("http://127.0.0.1:1"))
	for _, tt := range []struct {
		name string
		want int
	}{
		{"reader", http.StatusOK},
		{"/reader", http.StatusOK},
		{"reader/", http.StatusOK},
		{"arn:aws:iam::123456789012:role/reader", http.StatusOK},
		{"arn%3Aaws%3Aiam%3A%3A123456789012%3Arole%2Freader", http.StatusOK},
		{"writer", http.StatusNotFound},
		{"Reader", http.StatusNotFound},
		{"reader/writer", http.StatusNotFound},
		{"role/reader", http.StatusNotFound},
		{"arn:x", http.StatusNotFound},
		{"arn:aws:iam::123456789012:role/writer", http.StatusNotFound},
		{"arn:aws-cn:iam::123456789012:role/reader", http.StatusNotFound},
		{"%2572eader", http.StatusBadRequest},
	} {
		for _, kind := range []string{"", "-extended"} {
			got := ask(t, readerAddr, addr, "GET", listPath+kind+"/"+tt.name)
			if got.status != tt.want || (got.status == http.StatusOK) != strings.Contains(got.body, "ASIAREADER") {
				t.Errorf("%s%s: status %d, body %q", tt.name, kind, got.status, got.body)
			}
			if strings.Contains(got.body, "WRITER") {
				t.Errorf("%s: another pod's credentials", tt.name)
			}
		}
	}
}

// TestVerdictsAndErrorsAreAnsweredByOneTable holds the table, and that a pod is told nothing that is not for it.
func TestVerdictsAndErrorsAreAnsweredByOneTable(t *testing.T) {
	const telling = "arn:aws:sts::123456789012:assumed-role/node"
	for _, tt := range []struct {
		name     string
		decision *mappings.Decision
		err      error
		list     int
		role     int
		again    string
		document bool
	}{
		{name: "no role", decision: verdict(mappings.NoRole), list: 404, role: 404},
		{name: "forbidden", decision: verdict(mappings.Forbidden), list: 403, role: 403, document: true},
		{name: "malformed", decision: verdict(mappings.Malformed), list: 403, role: 403, document: true},
		{name: "pending", decision: verdict(mappings.Pending), list: 503, role: 503, again: "1"},
		{name: "ambiguous", decision: &mappings.Decision{Verdict: mappings.Ambiguous}, list: 503, role: 503, again: "1"},
		{name: "busy", decision: &mappings.Decision{Verdict: mappings.Busy}, list: 503, role: 503, again: "1"},
		{name: "not a pod", decision: &mappings.Decision{Verdict: mappings.NotAPod}, list: 403, role: 403},
		{name: "not a pod, and yet one", decision: verdict(mappings.NotAPod), list: 403, role: 403},
		{name: "undecided", decision: verdict(mappings.Undecided), list: 503, role: 503, again: "1"},
		{name: "no decision", list: 503, role: 503, again: "1"},
		{name: "a verdict of tomorrow", decision: verdict(99), list: 503, role: 503, again: "1"},
		{name: "allowed, but no pod", decision: &mappings.Decision{Verdict: mappings.Allowed, Listing: "reader"}, list: 503, role: 503, again: "1"},
		{
			name: "STS refuses", decision: allowedDecision("reader"),
			err: &credentials.Error{Kind: credentials.Refused, Code: "AccessDenied", Err: errors.New(telling)}, list: 200, role: 403, document: true,
		},
		{
			name: "STS does not understand", decision: allowedDecision("reader"),
			err: &credentials.Error{Kind: credentials.Invalid, Err: errors.New(telling)}, list: 200, role: 403, document: true,
		},
		{
			name: "STS is away", decision: allowedDecision("reader"),
			err: &credentials.Error{Kind: credentials.Unavailable, Err: errors.New(telling)}, list: 200, role: 503, again: "1",
		},
		{
			name: "STS throttles", decision: allowedDecision("reader"),
			err: &credentials.Error{Kind: credentials.Throttled, RetryAfter: 2500 * time.Millisecond, Err: errors.New(telling)}, list: 200, role: 503, again: "3",
		},
		{
			name: "no identity", decision: allowedDecision("reader"),
			err: &credentials.Error{Kind: credentials.OwnIdentity, Err: errors.New(telling)}, list: 200, role: 503, again: "1",
		},
		{name: "another error", decision: allowedDecision("reader"), err: errors.New(telling), list: 200, role: 503, again: "1"},
		{name: "neither session nor error", decision: allowedDecision("reader"), list: 200, role: 503, again: "1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cfg := testConfig("http://127.0.0.1:1")
			cfg.Decide = func(context.Context, netip.Addr, int) *mappings.Decision { return tt.decision }
			cfg.Credentials = func(context.Context, credentials.Key) (*credentials.Session, error) { return nil, tt.err }
			_, addr := start(t, cfg)
			for path, status := range map[string]int{
				listPath: tt.list, listPath + "-extended/": tt.list, "/latest/meta-data/iam/info": tt.list,
				listPath + "/reader": tt.role, listPath + "-extended/reader": tt.role,
			} {
				got := ask(t, readerAddr, addr, "GET", path)
				if got.status != status {
					t.Errorf("%s: status %d, want %d", path, got.status, status)
				}
				if status == http.StatusOK {
					continue
				}
				if again := got.header.Get("Retry-After"); again != tt.again {
					t.Errorf("%s: Retry-After %q, want %q", path, again, tt.again)
				}
				if strings.HasSuffix(path, "/reader") && tt.document {
					var doc struct{ Code, Message, LastUpdated string }
					if err := json.Unmarshal([]byte(got.body), &doc); err != nil || doc.Code != "AssumeRoleUnauthorizedAccess" || doc.LastUpdated == "" {
						t.Errorf("%s: %v, body %q", path, err, got.body)
					}
				} else if got.body != string(errorPage(status)) || got.header.Get("Content-Type") != "text/html" {
					t.Errorf("%s: body %q", path, got.body)
				}
				for _, told := range []string{"sts", "node", "operator", "arn:", "refused", "Success"} {
					if strings.Contains(got.body, told) {
						t.Errorf("%s: the answer speaks of %q: %s", path, told, got.body)
					}
				}
			}
		})
	}
}

func TestAnExpiredSessionIsNeverServed(t *testing.T) {
	cfg := testConfig("http://127.0.0.1:1")
	expired := testSession("reader")
	expired.Expiration = time.Now().Add(-time.Second)
	cfg.Credentials = func(context.Context, credentials.Key) (*credentials.Session, error) { return expired, nil }
	_, addr := start(t, cfg)
	if got := ask(t, readerAddr, addr, "GET", rolePath+"reader"); got.status != http.StatusServiceUnavailable || strings.Contains(got.body, "ASIA") {
		t.Errorf("%+v", got)
	}
}

func TestMethodsThatAPathDoesNotHaveAreRefused(t *testing.T) {
	_, addr := start(t, testConfig("http://127.0.0.1:1"))
	for _, tt := range []struct {
		method, target string
		status         int
		allow          string
	}{
		{"POST", rolePath + "reader", 405, "GET, HEAD"},
		{"PUT", rolePath + "reader", 405, "GET, HEAD"},
		{"DELETE", zonePath, 405, "GET, HEAD"},
		{"OPTIONS", listPath, 405, "GET, HEAD"},
		{"TRACE", "/", 405, "GET, HEAD"},
		{"BREW", "/", 405, "GET, HEAD"},
		{"GET", "/latest/api/token", 405, "PUT"},
		{"HEAD", "/latest/api/token", 405, "PUT"},
		{"CONNECT", "169.254.169.254:80", 400, ""},
		{"OPTIONS", "*", 400, ""},
		{"GET", "*", 400, ""},
		{"PRI", "*", 400, ""},
	} {
		got := ask(t, readerAddr, addr, tt.method, tt.target)
		if got.status != tt.status || got.header.Get("Allow") != tt.allow || strings.Contains(got.body, "ASIA") {
			t.Errorf("%s %s: status %d, Allow %q", tt.method, tt.target, got.status, got.header.Get("Allow"))
		}
	}
}

// TestARequestIsHeldUntilItIsDecided: most SDKs have one attempt, so waiting is better than failing.
func TestARequestIsHeldUntilItIsDecided(t *testing.T) {
	known := make(chan struct{})
	asked := make(chan struct{}, 1)
	cfg := testConfig("http://127.0.0.1:1")
	cfg.Decide = func(ctx context.Context, _ netip.Addr, _ int) *mappings.Decision {
		if deadline, ok := ctx.Deadline(); !ok || time.Until(deadline) > 5*time.Second {
			t.Errorf("the deadline is %v, %v", deadline, ok)
		}
		asked <- struct{}{}
		select {
		case <-known:
			return allowedDecision("reader")
		case <-ctx.Done():
			return verdict(mappings.Pending)
		}
	}
	_, addr := start(t, cfg)
	c := dial(t, readerAddr, addr)
	c.send(request("GET", listPath))
	<-asked
	close(known)
	if got := c.receive("GET"); got.status != http.StatusOK || got.body != "reader" {
		t.Errorf("%+v", got)
	}
}

func TestHoldingEndsAtTheDeadlineAndWithTheClient(t *testing.T) {
	outcomes := make(chan Request, 1)
	cfg := testConfig("http://127.0.0.1:1")
	cfg.Hold = 50 * time.Millisecond
	cfg.OnRequest = func(r Request) { outcomes <- r }
	asked := make(chan struct{}, 1)
	cfg.Credentials = func(ctx context.Context, _ credentials.Key) (*credentials.Session, error) {
		asked <- struct{}{}
		<-ctx.Done()
		return nil, &credentials.Error{Kind: credentials.Unavailable, Err: ctx.Err()}
	}
	_, addr := start(t, cfg)
	if got := ask(t, readerAddr, addr, "GET", rolePath+"reader"); got.status != http.StatusServiceUnavailable {
		t.Errorf("status %d", got.status)
	}
	<-asked
	if got := <-outcomes; got.Outcome != "unavailable" || !errors.Is(got.Err, context.DeadlineExceeded) {
		t.Errorf("%+v", got)
	}

	cfg.Hold = 20 * time.Second
	_, addr = start(t, cfg)
	c := dial(t, readerAddr, addr)
	c.send(request("GET", rolePath+"reader"))
	<-asked
	_ = c.Close()
	if got := <-outcomes; got.Outcome != string(outcomeGone) || !errors.Is(got.Err, context.Canceled) {
		t.Errorf("%+v", got)
	}
}
