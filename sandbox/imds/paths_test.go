package imds_test

import (
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"pod2role/sandbox/imds"
)

// tricks are request targets that name a secret only to a server that reads them leniently.
func tricks() []string {
	return []string{
		"//latest/meta-data/iam/info",
		"/latest//meta-data//iam//security-credentials",
		"/latest/meta-data/./iam/security-credentials/sandbox-node-role",
		"/latest/meta-data/x/../iam/security-credentials/sandbox-node-role",
		"/../../latest/user-data",
		"/latest/meta-data/%69am/info",
		"/latest/meta-data/%2569am/info",
		"/latest/meta-data/%252569am/info",
		"/latest/meta-data%2Fiam/info",
		"/latest/meta-data%5ciam%5cinfo",
		"/latest/%6deta-data/iam/security-credentials/",
		"/latest/%2e%2e/latest/user-data",
		"/latest/meta-data/..%2fuser-data",
		"/LATEST/meta-data/IAM/Security-Credentials/",
		`/latest\meta-data\iam\info`,
		"/9999-99-99/meta-data/iam/info",
		"/meta-data/iam/info",
		"/latest/user-data%20",
		"/latest/./user-data",
		"/latest/user-data;x=y",
		"/latest;a/meta-data;b/iam;c/info",
		"/;/latest/user-data",
		"/latest/user-data%00.txt",
		"/latest/meta-data/i%00am/info",
		"/latest/user-data%3fx",
		"/latest/user-data%23x",
		"/latest/meta-data/%25u0069am/info",
		"/latest/meta-data%c0%afiam/info",
		"/latest/meta-data/x/%c0%ae%c0%ae/iam/info",
		"/latest/dynamic/instance-identity//pkcs7",
		"/latest/meta-data/public-keys%2f0/openssh-key",
	}
}

func TestLenientPathsFindTheSecretInEveryTrick(t *testing.T) {
	lenient := imds.New(imds.Config{Paths: imds.Lenient, UserData: "x"})
	strict := imds.New(imds.Config{UserData: "x"})
	for _, target := range tricks() {
		for _, method := range []string{"GET", "HEAD"} {
			lenient.Reset()
			strict.Reset()
			if resp := ask(t, lenient, method, target); resp.Code != 200 {
				t.Errorf("lenient %s %s: %d, want 200", method, target, resp.Code)
			}
			if hits := lenient.SecretHits(); len(hits) != 1 || hits[0].Target != target {
				t.Errorf("lenient %s %s: secret hits %+v, want one of that target", method, target, hits)
			}
			if resp := ask(t, strict, method, target); resp.Code != 404 || len(strict.SecretHits()) != 0 {
				t.Errorf("strict %s %s: %d, %d secret hits, want 404 and none", method, target, resp.Code, len(strict.SecretHits()))
			}
		}
	}
}

func TestCanonicalPathsMeanTheSameToBothReadings(t *testing.T) {
	tests := []struct {
		target, path string
		secret       bool
	}{
		{"/", "/", false},
		{"/latest/", "/latest", false},
		{"/latest/meta-data/instance-id", "/latest/meta-data/instance-id", false},
		{"/latest/meta-data/placement/availability-zone/", "/latest/meta-data/placement/availability-zone", false},
		{"/2021-03-23/meta-data/iam/info", "/2021-03-23/meta-data/iam/info", true},
		{"/latest/meta-data/iam/security-credentials-extended/", "/latest/meta-data/iam/security-credentials-extended", true},
		{"/latest/user-data?x=y", "/latest/user-data", true},
		{"http://169.254.169.254/latest/user-data", "/latest/user-data", true},
		{"/latest/dynamic/instance-identity/document", "/latest/dynamic/instance-identity/document", false},
		{"/latest/dynamic/instance-identity/pkcs7", "/latest/dynamic/instance-identity/pkcs7", true},
		{"/latest/api/token", "/latest/api/token", false},
	}
	for _, paths := range []imds.Paths{imds.Strict, imds.Lenient} {
		s := imds.New(imds.Config{Paths: paths, UserData: "x"})
		for _, tt := range tests {
			s.Reset()
			ask(t, s, "GET", tt.target)
			hit := s.Hits()[0]
			if hit.Path != tt.path || hit.Secret != tt.secret {
				t.Errorf("paths %d: GET %s: path %q, secret %t, want %q, %t", paths, tt.target, hit.Path, hit.Secret, tt.path, tt.secret)
			}
		}
	}
}

func TestLenientPathsTakeATokenPut(t *testing.T) {
	s := imds.New(imds.Config{Paths: imds.Lenient})
	if resp := ask(t, s, "PUT", "//Latest/api%2Ftoken", imds.TokenTTLHeader, "60"); resp.Code != 200 {
		t.Errorf("PUT: %d, want 200", resp.Code)
	}
}

func FuzzLenientReadsASecretWhereStrictDoes(f *testing.F) {
	for _, target := range tricks() {
		f.Add(strings.TrimPrefix(target, "/"))
	}
	strict := imds.New(imds.Config{UserData: "x"})
	lenient := imds.New(imds.Config{UserData: "x", Paths: imds.Lenient})
	f.Fuzz(func(t *testing.T, target string) {
		target = "/" + target
		u, err := url.ParseRequestURI(target)
		if err != nil {
			t.Skip("net/http refuses the target")
		}
		strict.Reset()
		lenient.Reset()
		for _, s := range []*imds.Server{strict, lenient} {
			r := httptest.NewRequestWithContext(t.Context(), "GET", "/", nil)
			r.URL, r.RequestURI = u, target
			s.ServeHTTP(httptest.NewRecorder(), r)
		}
		if len(strict.SecretHits()) > len(lenient.SecretHits()) {
			t.Errorf("GET %q: strict reads a secret, lenient does not", target)
		}
		hit := lenient.Hits()[0]
		if hit.Status == 200 && !strings.HasPrefix(hit.Path, "/") {
			t.Errorf("GET %q: canonical path %q", target, hit.Path)
		}
	})
}
