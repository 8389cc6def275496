package sts_test

import (
	"encoding/xml"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pod2role/sandbox/sts"
)

const (
	reader = "arn:aws:iam::111122223333:role/reader"
	writer = "arn:aws:iam::444455556666:role/team/a/writer"

	userKey = "AKIAIOSFODNN7EXAMPLE" // of AWS's documentation
	nodeKey = "ASIAIOSFODNN7EXAMPLE"
)

// signed is an Authorization header of the right form.
func signed(accessKeyID string) string {
	return "AWS4-HMAC-SHA256 Credential=" + accessKeyID + "/20260102/eu-west-1/sts/aws4_request, " +
		"SignedHeaders=content-type;host;x-amz-date, Signature=" + strings.Repeat("0a", 32)
}

// answer is what a test looks at in a response.
type answer struct {
	Status  int    `xml:"-"`
	Code    string `xml:"Error>Code"`
	Message string `xml:"Error>Message"`
	Type    string `xml:"Error>Type"`
	Key     string `xml:"AssumeRoleResult>Credentials>AccessKeyId"`
	Secret  string `xml:"AssumeRoleResult>Credentials>SecretAccessKey"`
	Token   string `xml:"AssumeRoleResult>Credentials>SessionToken"`
	Expires string `xml:"AssumeRoleResult>Credentials>Expiration"`
}

// call posts a form, given as alternating names and values over those of a right AssumeRole. An empty value takes the
// parameter out.
func call(t *testing.T, s *sts.Server, authorization, token string, form ...string) answer {
	t.Helper()
	values := url.Values{
		"Action": {"AssumeRole"}, "Version": {"2011-06-15"}, "RoleArn": {reader}, "RoleSessionName": {"node-1"},
	}
	for i := 0; i+1 < len(form); i += 2 {
		values.Set(form[i], form[i+1])
		if form[i+1] == "" {
			values.Del(form[i])
		}
	}
	r := httptest.NewRequestWithContext(t.Context(), "POST", "/", strings.NewReader(values.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Authorization", authorization)
	r.Header.Set("X-Amz-Security-Token", token)
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	var got answer
	if err := xml.Unmarshal(w.Body.Bytes(), &got); err != nil {
		t.Fatalf("body %q: %v", w.Body, err)
	}
	got.Status = w.Code
	return got
}

func TestAssumeRoleValidatesAsSTSDoes(t *testing.T) {
	tags := func(n int) []string {
		var form []string
		for i := range n {
			form = append(form, "Tags.member."+strconv.Itoa(i+1)+".Key", "k"+strconv.Itoa(i))
		}
		return form
	}
	tests := []struct {
		name string
		form []string
		code string // empty: accepted
		says string
	}{
		{"as it should be", nil, "", ""},
		{"role with a path", []string{"RoleArn", writer}, "", ""},
		{"role of another partition", []string{"RoleArn", "arn:aws-cn:iam::111122223333:role/reader"}, "", ""},
		{"no role", []string{"RoleArn", ""}, "ValidationError", "'roleArn'"},
		{"role that is a name", []string{"RoleArn", "just-the-name-of-a-role"}, "ValidationError", "is invalid"},
		{"role that is a user", []string{"RoleArn", "arn:aws:iam::111122223333:user/reader"}, "ValidationError", "is invalid"},
		{"short account", []string{"RoleArn", "arn:aws:iam::11112222333:role/reader"}, "ValidationError", "is invalid"},
		{"shortest session name", []string{"RoleSessionName", "ab"}, "", ""},
		{"too short a session name", []string{"RoleSessionName", "a"}, "ValidationError", "greater than or equal to 2"},
		{"longest session name", []string{"RoleSessionName", strings.Repeat("a", 64)}, "", ""},
		{"too long a session name", []string{"RoleSessionName", strings.Repeat("a", 65)}, "ValidationError", "less than or equal to 64"},
		{"every legal character", []string{"RoleSessionName", "aZ9_+=,.@-"}, "", ""},
		{"slash in the session name", []string{"RoleSessionName", "ns/pod"}, "ValidationError", "regular expression"},
		{"shortest duration", []string{"DurationSeconds", "900"}, "", ""},
		{"too short a duration", []string{"DurationSeconds", "899"}, "ValidationError", "'durationSeconds'"},
		{"longest duration", []string{"DurationSeconds", "43200"}, "", ""},
		{"too long a duration", []string{"DurationSeconds", "43201"}, "ValidationError", "'durationSeconds'"},
		{"duration in words", []string{"DurationSeconds", "1h"}, "MalformedInput", ""},
		{"shortest external ID", []string{"ExternalId", "ab"}, "", ""},
		{"too short an external ID", []string{"ExternalId", "a"}, "ValidationError", "'externalId'"},
		{"longest external ID", []string{"ExternalId", strings.Repeat("a", 1224)}, "", ""},
		{"too long an external ID", []string{"ExternalId", strings.Repeat("a", 1225)}, "ValidationError", "'externalId'"},
		{"external ID with a blank", []string{"ExternalId", "a b"}, "ValidationError", "'externalId'"},
		{"fifty tags", tags(50), "", ""},
		{"too many tags", tags(51), "ValidationError", "'tags'"},
		{"too long a tag key", []string{"Tags.member.1.Key", strings.Repeat("k", 129)}, "ValidationError", "tags.1.member.key"},
		{"too long a tag value", []string{"Tags.member.1.Key", "k", "Tags.member.1.Value", strings.Repeat("v", 257)}, "ValidationError", "tags.1.member.value"},
		{"tag keys that differ in case", []string{"Tags.member.1.Key", "Pod", "Tags.member.2.Key", "pod"}, "InvalidParameterValue", "Duplicate"},
		{"two faults", []string{"RoleSessionName", "/"}, "ValidationError", "2 validation errors"},
		{"other version", []string{"Version", "2012-01-01"}, "InvalidAction", "for version 2012-01-01"},
		{"other action", []string{"Action", "GetFederationToken"}, "InvalidAction", "GetFederationToken"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := call(t, sts.New(sts.Config{}), signed(userKey), "", tt.form...)
			if tt.code == "" {
				if got.Status != 200 || got.Key == "" {
					t.Errorf("answered %+v, want credentials", got)
				}
				return
			}
			if got.Status != 400 || got.Code != tt.code || !strings.Contains(got.Message, tt.says) || got.Type != "Sender" {
				t.Errorf("answered %+v, want 400 %s saying %q", got, tt.code, tt.says)
			}
		})
	}
}

func TestChainedRolesLastOneHourAtMost(t *testing.T) {
	s := sts.New(sts.Config{Roles: map[string]sts.Role{reader: {MaxSessionDuration: 2 * time.Hour}}})
	if got := call(t, s, signed(userKey), "", "DurationSeconds", "7200"); got.Status != 200 {
		t.Errorf("a user's two hours: %+v, want credentials", got)
	}
	if got := call(t, s, signed(userKey), "", "DurationSeconds", "7201"); got.Code != "ValidationError" || !strings.Contains(got.Message, "MaxSessionDuration") {
		t.Errorf("more than the role gives: %+v, want a ValidationError that says so", got)
	}
	if got := call(t, s, signed(nodeKey), "token", "DurationSeconds", "3600"); got.Status != 200 {
		t.Errorf("a node's one hour: %+v, want credentials", got)
	}
	if got := call(t, s, signed(nodeKey), "token", "DurationSeconds", "3601"); got.Code != "ValidationError" || !strings.Contains(got.Message, "role chaining") {
		t.Errorf("more than a node's one hour: %+v, want a ValidationError that says so", got)
	}
}

func TestSignatureMustBeThere(t *testing.T) {
	tests := []struct {
		name, authorization, token string
		cfg                        sts.Config
		status                     int
		code                       string
	}{
		{"none", "", "", sts.Config{}, 403, "MissingAuthenticationToken"},
		{"of another scheme", "Bearer x", "", sts.Config{}, 400, "IncompleteSignature"},
		{"for another service", strings.Replace(signed(userKey), "/sts/", "/s3/", 1), "", sts.Config{}, 403, "SignatureDoesNotMatch"},
		{"for another region", signed(userKey), "", sts.Config{Region: "us-east-1"}, 403, "SignatureDoesNotMatch"},
		{"for the region", signed(userKey), "", sts.Config{Region: "eu-west-1"}, 200, ""},
		{"without the host", strings.Replace(signed(userKey), "host;", "", 1), "", sts.Config{}, 403, "SignatureDoesNotMatch"},
		{"temporary key without token", signed(nodeKey), "", sts.Config{}, 403, "InvalidClientTokenId"},
		{"unknown key", signed(userKey), "", sts.Config{Callers: map[string]string{}}, 403, "InvalidClientTokenId"},
		{"known key", signed(userKey), "", sts.Config{Callers: map[string]string{userKey: "arn:aws:iam::111122223333:user/a"}}, 200, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := call(t, sts.New(tt.cfg), tt.authorization, tt.token)
			if got.Status != tt.status || got.Code != tt.code {
				t.Errorf("answered %d %q, want %d %q", got.Status, got.Code, tt.status, tt.code)
			}
		})
	}
}

func TestTrustDecidesByCallerExternalIDAndTags(t *testing.T) {
	const node = "arn:aws:sts::111122223333:assumed-role/node/i-1"
	cfg := sts.Config{
		Callers: map[string]string{nodeKey: node, userKey: "arn:aws:iam::111122223333:user/a"},
		Roles: map[string]sts.Role{
			reader: {Trusts: []string{"arn:aws:iam::111122223333:role/node"}, DenyTags: true},
			writer: {Trusts: []string{node}, ExternalID: "secret-7"},
		},
	}
	tests := []struct {
		name, key string
		form      []string
		refused   string // the action, empty: allowed
	}{
		{"the role behind the caller", nodeKey, nil, ""},
		{"another caller", userKey, nil, "sts:AssumeRole"},
		{"tags that are not allowed", nodeKey, []string{"Tags.member.1.Key", "pod"}, "sts:TagSession"},
		{"no external ID", nodeKey, []string{"RoleArn", writer}, "sts:AssumeRole"},
		{"another external ID", nodeKey, []string{"RoleArn", writer, "ExternalId", "secret-8"}, "sts:AssumeRole"},
		{"the external ID", nodeKey, []string{"RoleArn", writer, "ExternalId", "secret-7"}, ""},
		{"a role that does not exist", nodeKey, []string{"RoleArn", reader + "2"}, "sts:AssumeRole"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := call(t, sts.New(cfg), signed(tt.key), "token", tt.form...)
			if tt.refused == "" {
				if got.Status != 200 {
					t.Errorf("answered %+v, want credentials", got)
				}
				return
			}
			if got.Status != 403 || got.Code != "AccessDenied" || !strings.Contains(got.Message, "perform: "+tt.refused+" on") || got.Key != "" {
				t.Errorf("answered %+v, want 403 AccessDenied of %s", got, tt.refused)
			}
		})
	}
	t.Run("a function", func(t *testing.T) {
		s := sts.New(sts.Config{Trust: func(c sts.Call) bool { return c.SessionName == "node-2" }})
		if got := call(t, s, signed(userKey), ""); got.Code != "AccessDenied" {
			t.Errorf("answered %+v, want AccessDenied", got)
		}
		if got := call(t, s, signed(userKey), "", "RoleSessionName", "node-2"); got.Status != 200 {
			t.Errorf("answered %+v, want credentials", got)
		}
	})
}

func TestCredentialsGivenHereAreSessionsHere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := sts.New(sts.Config{Lifetime: 40 * time.Second, Callers: map[string]string{userKey: "arn:aws:iam::111122223333:user/a"}})
		first := call(t, s, signed(userKey), "", "RoleArn", writer)
		if want := time.Now().Add(40 * time.Second).UTC().Format(time.RFC3339); first.Expires != want {
			t.Errorf("expires %s, want %s", first.Expires, want)
		}
		other := call(t, s, signed(userKey), "")
		if got := call(t, s, signed(first.Key), other.Token); got.Code != "InvalidClientTokenId" {
			t.Errorf("key of one session with the token of another: %+v, want InvalidClientTokenId", got)
		}
		time.Sleep(39 * time.Second)
		if got := call(t, s, signed(first.Key), first.Token); got.Status != 200 {
			t.Errorf("in time: %+v, want credentials", got)
		}
		calls := s.Calls()
		last := calls[len(calls)-1]
		if last.Caller != "arn:aws:sts::444455556666:assumed-role/writer/node-1" || last.CallerRoleARN != writer {
			t.Errorf("caller %q, role %q, want the session of writer", last.Caller, last.CallerRoleARN)
		}
		time.Sleep(time.Second)
		if got := call(t, s, signed(first.Key), first.Token); got.Status != 403 || got.Code != "ExpiredToken" {
			t.Errorf("after its life: %+v, want 403 ExpiredToken", got)
		}
	})
}
