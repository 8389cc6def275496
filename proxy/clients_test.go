package proxy

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// TestClientsGetTheirCredentials plays what SDKs send, as their sources have it, and holds what each demands.
func TestClientsGetTheirCredentials(t *testing.T) {
	rec := newRecorder(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			w.Header().Set("Content-Type", "text/plain")
			_, _ = io.WriteString(w, "eu-west-1a")
		}
	})
	_, addr := start(t, testConfig(rec.URL))
	const extended = "/latest/meta-data/iam/security-credentials-extended/"
	for _, tt := range []struct {
		name  string
		ttl   string   // of the token PUT; empty: IMDSv1
		list  string   // the listing
		role  string   // what the role's name is appended to
		slash string   // what is appended to the role's name
		lines []string // header lines of every request
		also  []string // further paths
		keep  bool     // all on one connection
	}{
		{
			name: "botocore", ttl: "21600", list: rolePath, role: rolePath, also: []string{zonePath + "/"},
			lines: []string{"User-Agent: Boto3/1.43.11", "Accept-Encoding: identity"},
		},
		{
			name: "Go v2", ttl: "300", list: rolePath, role: rolePath, keep: true,
			lines: []string{"User-Agent: aws-sdk-go-v2/1.41.6", "Accept-Encoding: gzip", "Amz-Sdk-Request: attempt=1; max=3"},
		},
		{
			name: "Java v2", ttl: "21600", list: extended, role: extended, keep: true,
			lines: []string{"User-Agent: aws-sdk-java/2.31", "Accept: */*", "Connection: keep-alive"},
		},
		{name: "Java v1", list: rolePath, role: rolePath, lines: []string{"User-Agent: aws-sdk-java/1.12", "Accept: */*", "Connection: keep-alive"}},
		{name: "JS v3", ttl: "21600", list: rolePath, role: rolePath, lines: []string{"Connection: close"}},
		{
			name: "Rust", ttl: "21600", list: rolePath, role: rolePath, keep: true,
			lines: []string{"user-agent: aws-sdk-rust/1.3", "x-amz-user-agent: aws-sdk-rust/1.3"},
		},
		{
			name: "C++", ttl: "21600", list: listPath, role: rolePath, also: []string{zonePath},
			lines: []string{"user-agent: aws-sdk-cpp/1.11", "Accept: */*"},
		},
		{name: ".NET", ttl: "21600", list: listPath, role: rolePath, also: []string{"/latest/meta-data/iam/info"}},
		{name: "Envoy", ttl: "21600", list: listPath, role: rolePath, lines: []string{"user-agent: Envoy", "x-envoy-expected-rq-timeout-ms: 5000"}},
		{name: "CRT", ttl: "21600", list: rolePath, role: rolePath, lines: []string{"Accept: */*", "user-agent: aws-sdk-crt/credentials-provider"}},
		{name: "Kotlin", ttl: "21600", list: listPath, role: rolePath},
		{name: "a client that ends the role's name with a slash", list: rolePath, role: rolePath, slash: "/"},
		{name: "a client that doubles slashes", ttl: "60", list: "//latest//meta-data/iam/security-credentials/", role: "//latest//meta-data/iam/security-credentials//"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var c *client
			send := func(method, target string, lines ...string) response {
				if c == nil || !tt.keep {
					c = dial(t, readerAddr, addr)
				}
				c.send(request(method, target, append(lines, tt.lines...)...))
				got := c.receive(method)
				if got.status != http.StatusOK || got.header.Get("Location") != "" || got.header.Get("Content-Length") == "" {
					t.Fatalf("%s %s: %+v", method, target, got)
				}
				return got
			}
			var lines []string
			if tt.ttl != "" {
				put := send("PUT", "/latest/api/token", "x-aws-ec2-metadata-token-ttl-seconds: "+tt.ttl, "Content-Length: 0")
				if put.header.Get(tokenTTLHeader) != tt.ttl {
					t.Errorf("TTL %q", put.header.Get(tokenTTLHeader))
				}
				lines = []string{"x-aws-ec2-metadata-token: " + put.body}
			}
			role := send("GET", tt.list, lines...).body
			if role != "reader" {
				t.Fatalf("role %q", role)
			}
			body := send("GET", tt.role+role+tt.slash, lines...).body
			for _, path := range tt.also {
				_ = send("GET", path, lines...)
			}

			var got map[string]string
			if err := json.Unmarshal([]byte(body), &got); err != nil {
				t.Fatal(err)
			}
			if got["Code"] != "Success" || got["Type"] != "AWS-HMAC" || got["AccessKeyId"] != "ASIAREADER" ||
				got["SecretAccessKey"] != "secret/of+reader" || !strings.HasPrefix(got["Token"], "token-of-reader") {
				t.Errorf("%v", got)
			}
			for _, name := range []string{"LastUpdated", "Expiration"} {
				if _, err := time.Parse("2006-01-02T15:04:05Z", got[name]); err != nil {
					t.Error(err)
				}
			}
			if strings.Contains(tt.role, "extended") != (got["AccountId"] == "123456789012") {
				t.Errorf("account %q", got["AccountId"])
			}
		})
	}
}
