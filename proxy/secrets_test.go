package proxy

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// secretTargets are ways to ask for what no pod gets, or gets from the daemon only.
func secretTargets() []string {
	return []string{
		"/latest/meta-data/iam/security-credentials/node-role",
		"//latest/meta-data/iam/security-credentials/node-role",
		"/latest//meta-data//iam//security-credentials",
		"/latest//meta-data//iam//security-credentials//node-role",
		"/latest/meta-data/./iam/security-credentials/node-role",
		"/latest/meta-data/x/../iam/security-credentials/node-role",
		"/latest/meta-data/%69am/security-credentials/node-role",
		"/latest/meta-data%2Fiam/security-credentials/node-role",
		"/latest/%6deta-data/iam/security-credentials/node-role",
		"/latest/%2e%2e/latest/meta-data/iam/security-credentials/node-role",
		"/LATEST/meta-data/IAM/security-credentials/node-role",
		"/latest/META-DATA/iam/security-credentials/node-role",
		"/latest/meta-data/iam/Security-Credentials/node-role",
		`/latest\meta-data\iam\security-credentials\node-role`,
		`/latest/meta-data\iam/security-credentials/node-role`,
		"/latest/meta-data/iam;x/security-credentials/node-role",
		"/latest/meta-data/iam/security-credentials;/node-role",
		"/latest/meta-data/iam/security-credentials%00/node-role",
		"/latest/meta-data/iam%252Fsecurity-credentials/",
		"/latest/meta-data/iam/security-credentials%20/",
		"/latest/meta-data/iam/security-credentials/node-role%0abar",
		"/a/latest/meta-data/iam/security-credentials/node-role",
		"/meta-data/iam/security-credentials/node-role",
		"/1.0/meta-data/iam/security-credentials/node-role",
		"/2009-04-04/meta-data/iam/security-credentials/node-role",
		"/2016-09-02/meta-data/iam/security-credentials/node-role",
		"/9999-99-99/meta-data/iam/security-credentials/node-role",
		"/latest/meta-data/iam/",
		"/latest/meta-data/iam/unheard-of",
		"/latest/meta-data/iam/security-credentials-extended/",
		"/latest/meta-data/iam/security-credentials-extended/node-role",
		"/latest/meta-data/iam/security-credentials-of-tomorrow/node-role",
		"/latest/meta-data/iam/info",
		"/latest/meta-data/identity-credentials/ec2/security-credentials/ec2-instance/",
		"/latest/meta-data/identity-credentials/ec2/info",
		"/latest/user-data", "/latest/user-data/", "/latest/user-data?x", "/latest/user-data%20", "/latest/user-data/.",
		"/latest/User-Data", "/user-data", "/2009-04-04/user-data", "//user-data",
		"/latest/dynamic/instance-identity/pkcs7",
		"/latest/dynamic/instance-identity/rsa2048",
		"/latest/dynamic/instance-identity/signature",
		"/latest/dynamic/instance-identity/document/../signature",
		"/latest/meta-data/public-keys/0/openssh-key",
		"/latest/meta-data/managed-ssh-keys/active-keys/ec2-user",
		"/latest/meta-data/managed-ssh-keys/signer-cert/",
		"/1.0/api/token",
		"/latest/api/token",
	}
}

// TestNoSpellingOfASecretReachesTheRealService asks for each of them in every form that HTTP has.
func TestNoSpellingOfASecretReachesTheRealService(t *testing.T) {
	rec := newRecorder(t, nil)
	_, addr := start(t, testConfig(rec.URL))
	const host = "Host: 169.254.169.254\r\n"
	for _, form := range []struct {
		name  string
		bytes func(target string) string
		heads []string // the method of each answer
	}{
		{"GET", func(s string) string { return "GET " + s + " HTTP/1.1\r\n" + host + "\r\n" }, []string{"GET"}},
		{"HEAD", func(s string) string { return "HEAD " + s + " HTTP/1.1\r\n" + host + "\r\n" }, []string{"HEAD"}},
		{"HTTP 1.0", func(s string) string { return "GET " + s + " HTTP/1.0\r\n\r\n" }, []string{"GET"}},
		{"absolute form", func(s string) string {
			return "GET http://169.254.169.254" + s + " HTTP/1.1\r\n" + host + "\r\n"
		}, []string{"GET"}},
		{"absolute form of another host", func(s string) string {
			return "GET http://evil.example:8080" + s + " HTTP/1.1\r\n" + host + "\r\n"
		}, []string{"GET"}},
		{"pipelined", func(s string) string {
			one := "GET " + s + " HTTP/1.1\r\n" + host + "\r\n"
			return one + one
		}, []string{"GET", "GET"}},
		{"pipelined behind one that is served", func(s string) string {
			return "GET " + rolePath + " HTTP/1.1\r\n" + host + "\r\nGET " + s + " HTTP/1.1\r\n" + host + "\r\n"
		}, []string{"GET", "GET"}},
		{"in the body of another", func(s string) string {
			inner := "GET " + s + " HTTP/1.1\r\n" + host + "\r\n"
			return fmt.Sprintf("GET %s HTTP/1.1\r\n%sContent-Length: %d\r\n\r\n%s", rolePath, host, len(inner), inner)
		}, []string{"GET"}},
		{"Connection names the token", func(s string) string {
			return "GET " + s + " HTTP/1.1\r\n" + host + "Connection: " + tokenHeader + "\r\n\r\n"
		}, []string{"GET"}},
		{"Connection names Host", func(s string) string {
			return "GET " + s + " HTTP/1.1\r\n" + host + "Connection: host, keep-alive\r\n\r\n"
		}, []string{"GET"}},
		{"rewriting headers", func(s string) string {
			return "GET / HTTP/1.1\r\n" + host + "X-Original-URL: " + s + "\r\nX-Rewrite-URL: " + s + "\r\n\r\n"
		}, []string{"GET"}},
	} {
		t.Run(form.name, func(t *testing.T) {
			for _, target := range secretTargets() {
				c := dial(t, readerAddr, addr)
				c.send(form.bytes(target))
				for i, method := range form.heads {
					got, err := c.tryReceive(method)
					if err != nil && i > 0 {
						break // the first answer has closed the connection
					} else if err != nil {
						t.Fatalf("%q: %v", target, err)
					}
					if got.status >= 300 && got.status < 400 || got.status >= 500 || got.header.Get("Location") != "" {
						t.Errorf("%q: status %d", target, got.status)
					}
					if strings.Contains(got.body, nodeSecret) && form.name != "rewriting headers" || strings.Contains(got.body, "WRITER") {
						t.Errorf("%q: got a secret", target)
					}
				}
				_ = c.Close()
			}
		})
	}
	for _, r := range rec.gets() {
		if r.URL.Path != "/" || r.Header.Get("X-Original-Url") != "" {
			t.Errorf("the real service was asked for %q", r.RequestURI)
		}
	}
}

func TestNothingOpensASecretButTheOptionForUserData(t *testing.T) {
	rec := newRecorder(t, nil)
	for _, tt := range []struct {
		name     string
		pass     PassThrough
		userData int
	}{
		{"an expression that matches everything", PassThrough{Allow: []string{".*"}}, http.StatusNotFound},
		{"the option for user data", PassThrough{UserData: true, Allow: []string{".*"}}, http.StatusOK},
		{"the option for user data in mode none", PassThrough{Mode: None, UserData: true}, http.StatusOK},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cfg := testConfig(rec.URL)
			cfg.PassThrough = tt.pass
			_, addr := start(t, cfg)
			for _, target := range secretTargets() {
				got := ask(t, readerAddr, addr, "GET", target)
				isUserData := classify("GET", target).route == routeUserData
				switch {
				case isUserData && got.status != tt.userData:
					t.Errorf("%q: got %d, want %d", target, got.status, tt.userData)
				case !isUserData && strings.Contains(got.body, nodeSecret):
					t.Errorf("%q: got a secret", target)
				}
			}
		})
	}
}
