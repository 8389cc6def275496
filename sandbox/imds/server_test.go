package imds_test

import (
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"pod2role/sandbox/imds"
)

// ask sends one request to the handler, headers given as alternating names and values.
func ask(t *testing.T, s *imds.Server, method, target string, headers ...string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, target, nil)
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w
}

// mint returns a token that lives ttl seconds.
func mint(t *testing.T, s *imds.Server, ttl string) string {
	t.Helper()
	resp := ask(t, s, "PUT", "/latest/api/token", imds.TokenTTLHeader, ttl)
	if resp.Code != 200 {
		t.Fatalf("PUT token: %d", resp.Code)
	}
	return resp.Body.String()
}

func TestTokenPutAnswersAsEC2Does(t *testing.T) {
	const ttl = imds.TokenTTLHeader
	tests := []struct {
		name    string
		cfg     imds.Config
		method  string
		target  string
		headers []string
		want    int
	}{
		{"shortest life", imds.Config{}, "PUT", "/latest/api/token", []string{ttl, "1"}, 200},
		{"longest life", imds.Config{}, "PUT", "/latest/api/token", []string{ttl, "21600"}, 200},
		{"trailing slash", imds.Config{}, "PUT", "/latest/api/token/", []string{ttl, "60"}, 200},
		{"no life", imds.Config{}, "PUT", "/latest/api/token", nil, 400},
		{"life of zero", imds.Config{}, "PUT", "/latest/api/token", []string{ttl, "0"}, 400},
		{"too long a life", imds.Config{}, "PUT", "/latest/api/token", []string{ttl, "21601"}, 400},
		{"negative life", imds.Config{}, "PUT", "/latest/api/token", []string{ttl, "-1"}, 400},
		{"life with a sign", imds.Config{}, "PUT", "/latest/api/token", []string{ttl, "+60"}, 400},
		{"life in words", imds.Config{}, "PUT", "/latest/api/token", []string{ttl, "abc"}, 400},
		{"dated version", imds.Config{}, "PUT", "/2021-03-23/api/token", []string{ttl, "60"}, 403},
		{"forwarded", imds.Config{}, "PUT", "/latest/api/token", []string{ttl, "60", "X-Forwarded-For", "10.0.0.1"}, 403},
		{"tokens disabled", imds.Config{Tokens: imds.TokensDisabled}, "PUT", "/latest/api/token", []string{ttl, "60"}, 403},
		{"tokens required", imds.Config{Tokens: imds.TokensRequired}, "PUT", "/latest/api/token", []string{ttl, "60"}, 200},
		{"GET", imds.Config{}, "GET", "/latest/api/token", []string{ttl, "60"}, 405},
		{"POST", imds.Config{}, "POST", "/latest/api/token", []string{ttl, "60"}, 405},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			resp := ask(t, imds.New(tt.cfg), tt.method, tt.target, tt.headers...)
			if resp.Code != tt.want {
				t.Errorf("status %d, want %d", resp.Code, tt.want)
			}
			body, echo := resp.Body.String(), resp.Header().Get(ttl)
			if tt.want != 200 {
				if strings.Contains(body, imds.TokenMarker) || echo != "" {
					t.Errorf("refused, and yet gave body %q, TTL %q", body, echo)
				}
				return
			}
			if !strings.HasPrefix(body, imds.TokenMarker) || strings.TrimSpace(body) != body {
				t.Errorf("token %q, want the marker and no space", body)
			}
			if echo != tt.headers[1] {
				t.Errorf("echoed TTL %q, want %q", echo, tt.headers[1])
			}
		})
	}
}

func TestTokenGuardsData(t *testing.T) {
	const target = "/latest/meta-data/instance-id"
	type given struct{ token, forwarded string }
	tests := []struct {
		name   string
		tokens imds.Tokens
		given  given
		want   int
	}{
		{"optional without token", imds.TokensOptional, given{}, 200},
		{"optional with token", imds.TokensOptional, given{token: "good"}, 200},
		{"optional with bad token", imds.TokensOptional, given{token: "bad"}, 401},
		{"optional with forged token", imds.TokensOptional, given{token: imds.TokenMarker + strings.Repeat("A", 44)}, 401},
		{"required without token", imds.TokensRequired, given{}, 401},
		{"required with token", imds.TokensRequired, given{token: "good"}, 200},
		{"required with bad token", imds.TokensRequired, given{token: "bad"}, 401},
		{"disabled with bad token", imds.TokensDisabled, given{token: "bad"}, 200},
		{"forwarded with token", imds.TokensOptional, given{token: "good", forwarded: "10.0.0.1"}, 403},
		{"forwarded without token", imds.TokensOptional, given{forwarded: "10.0.0.1"}, 200},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := imds.New(imds.Config{Tokens: tt.tokens})
			token := tt.given.token
			if token == "good" {
				token = mint(t, s, "60")
			}
			resp := ask(t, s, "GET", target, imds.TokenHeader, token, "X-Forwarded-For", tt.given.forwarded)
			if resp.Code != tt.want {
				t.Errorf("status %d, want %d", resp.Code, tt.want)
			}
		})
	}
}

func TestTokenWorksUntilItsLifeIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := imds.New(imds.Config{Tokens: imds.TokensRequired})
		short, long := mint(t, s, "60"), mint(t, s, "21600")
		status := func(token string) int {
			return ask(t, s, "GET", "/latest/meta-data/", imds.TokenHeader, token).Code
		}
		time.Sleep(59 * time.Second)
		resp := ask(t, s, "GET", "/latest/meta-data/", imds.TokenHeader, short)
		if left := resp.Header().Get(imds.TokenTTLHeader); resp.Code != 200 || left != "1" {
			t.Errorf("after 59 s: status %d, left %q, want 200, 1", resp.Code, left)
		}
		time.Sleep(time.Second)
		if got := status(short); got != 401 {
			t.Errorf("after 60 s: status %d, want 401", got)
		}
		if got := status(long); got != 200 {
			t.Errorf("long token after 60 s: status %d, want 200", got)
		}
		s.RevokeTokens()
		if got := status(long); got != 401 {
			t.Errorf("revoked token: status %d, want 401", got)
		}
	})
}

func TestAnswersCarryTheHeadersOfEC2(t *testing.T) {
	s := imds.New(imds.Config{UserData: "#!/bin/sh"})
	tests := []struct {
		method, target string
		status         int
		contentType    string
	}{
		{"GET", "/latest/meta-data/instance-id", 200, "text/plain"},
		{"GET", "/latest/user-data", 200, "application/octet-stream"},
		{"GET", "/latest/nothing", 404, "text/html"},
		{"GET", "/9999-99-99/meta-data/", 404, "text/html"},
		{"HEAD", "/latest/meta-data/managed-ssh-keys/active-keys/ec2-user/", 200, "text/plain"},
		{"DELETE", "/latest/meta-data/", 405, "text/plain"},
		{"PUT", "/latest/meta-data/", 405, "text/plain"},
	}
	for _, tt := range tests {
		t.Run(tt.method+" "+tt.target, func(t *testing.T) {
			resp := ask(t, s, tt.method, tt.target)
			body := resp.Body.String()
			if resp.Code != tt.status {
				t.Errorf("status %d, want %d", resp.Code, tt.status)
			}
			got := []string{resp.Header().Get("Server"), resp.Header().Get("Content-Type"), resp.Header().Get("Connection")}
			if diff := cmp.Diff([]string{"EC2ws", tt.contentType, "close"}, got); diff != "" {
				t.Errorf("Server, Content-Type, Connection (-want +got):\n%s", diff)
			}
			if length := resp.Header().Get("Content-Length"); length != strconv.Itoa(len(body)) {
				t.Errorf("Content-Length %q, body has %d bytes", length, len(body))
			}
			if modified := resp.Header().Get("Last-Modified"); (modified != "") != (tt.status == 200) {
				t.Errorf("Last-Modified %q with status %d", modified, tt.status)
			}
		})
	}
}

func TestErrorBodyIsTheOneOfEC2(t *testing.T) {
	resp := ask(t, imds.New(imds.Config{Tokens: imds.TokensRequired}), "GET", "/")
	body := resp.Body.String()
	// 343 bytes were seen: https://github.com/DataDog/datadog-agent/pull/4857
	if len(body) != 343 || !strings.Contains(body, "<title>401 - Unauthorized</title>") {
		t.Errorf("%d bytes, want the 343 of EC2's page:\n%s", len(body), body)
	}
}

func TestKeepAliveLeavesConnectionsOpen(t *testing.T) {
	resp := ask(t, imds.New(imds.Config{KeepAlive: true}), "GET", "/latest/meta-data/")
	if got := resp.Header().Get("Connection"); got != "" {
		t.Errorf("Connection: %q, want none", got)
	}
}
