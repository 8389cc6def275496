package proxy

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestATargetIsUnderstoodInOneWayOrNotAtAll(t *testing.T) {
	const iam = "/latest/meta-data/iam/"
	invalid, denied := target{}, target{route: routeDenied}
	pass := func(path string) target { return target{route: routePassThrough, path: path} }
	role := func(name string) target { return target{route: routeRole, role: name} }
	noMethod := target{route: routeMethod, allow: "GET, HEAD"}
	for _, tt := range []struct {
		method, raw string
		want        target
	}{
		{"GET", iam + "security-credentials", target{route: routeList}},
		{"GET", iam + "security-credentials/", target{route: routeList}},
		{"HEAD", iam + "security-credentials//", target{route: routeList}},
		{"GET", "//latest//meta-data///iam/security-credentials/", target{route: routeList}},
		{"GET", "/1.0/meta-data/iam/security-credentials/", target{route: routeList}},
		{"GET", "/9999-99-99/meta-data/iam/security-credentials", target{route: routeList}},
		{"GET", iam + "security-credentials/?x=y", target{route: routeList}},
		{"GET", iam + "security-credentials/reader", role("reader")},
		{"GET", iam + "security-credentials/reader/", role("reader")},
		{"GET", iam + "security-credentials//team/reader", role("team/reader")},
		{"GET", iam + "security-credentials/arn:aws:iam::123456789012:role/team/reader", role("arn:aws:iam::123456789012:role/team/reader")},
		{"GET", iam + "security-credentials/arn%3Aaws%3aiam%3A%3A123456789012%3Arole%2Fteam%2Freader", role("arn:aws:iam::123456789012:role/team/reader")},
		{"GET", iam + "security-credentials/%72eader", role("reader")},
		{"GET", iam + "security-credentials/r+e=a,d.e@r_-", role("r+e=a,d.e@r_-")},
		{"GET", iam + "security-credentials/%2572eader", invalid}, // decoded once, and never again
		{"GET", iam + "security-credentials/..%2f..%2fuser-data", invalid},
		{"GET", iam + "security-credentials/%2e%2e", invalid},
		{"GET", iam + "security-credentials/%2f", invalid},
		{"GET", iam + "security-credentials/reader%", invalid},
		{"GET", iam + "security-credentials/reader%4", invalid},
		{"GET", iam + "security-credentials/reader%zz", invalid},
		{"GET", iam + "security-credentials/reader%00", invalid},
		{"GET", iam + "security-credentials/reader%0a", invalid},
		{"GET", iam + "security-credentials/reader%20", invalid},
		{"GET", iam + "security-credentials/reader?%41", invalid},
		{"GET", iam + "security-credentials%2freader", invalid},
		{"GET", iam + "security-credentials/../security-credentials/reader", invalid},
		{"GET", "/%6catest/meta-data/iam/security-credentials/reader", invalid},
		{"GET", iam + "security-credentials;/reader", invalid},
		{"GET", iam + "security-credentials-extended", target{route: routeExtendedList}},
		{"GET", iam + "security-credentials-extended/reader/", target{route: routeExtendedRole, role: "reader"}},
		{"GET", iam + "info", target{route: routeInfo}},
		{"GET", iam + "info/", target{route: routeInfo}},
		{"GET", iam + "info/more", denied},
		{"GET", iam, denied},
		{"GET", "/latest/meta-data/iam", denied},
		{"GET", "/latest/meta-data/IAM/security-credentials/reader", denied},
		{"GET", "/latest/Meta-Data/iam/security-credentials/reader", denied},
		{"GET", "/LATEST/meta-data/IAM/info", denied},
		{"GET", "/meta-data/iam/security-credentials/reader", denied},
		{"GET", "/a/latest/meta-data/iam/security-credentials/reader", denied},
		{"GET", "/latest/meta-data/iam/security-credential", denied},
		{"POST", iam + "security-credentials/", noMethod},
		{"PUT", iam + "security-credentials/reader", noMethod},
		{"DELETE", "/latest/user-data", noMethod},
		{"get", iam + "info", noMethod},
		{"OPTIONS", "/", noMethod},
		{"TRACE", "/", noMethod},

		{"PUT", "/latest/api/token", target{route: routeToken}},
		{"PUT", "/latest/api/token/", target{route: routeToken}},
		{"PUT", "//latest/api//token", target{route: routeToken}},
		{"PUT", "/2021-03-23/api/token", target{route: routeDatedToken}},
		{"PUT", "/LATEST/api/token", target{route: routeDatedToken}},
		{"PUT", "/latest/api/token/more", noMethod},
		{"PUT", "/latest/API/token", noMethod},
		{"PUT", "/latest/api%2ftoken", invalid},
		{"PUT", "/latest/api/./token", invalid},
		{"GET", "/latest/api/token", target{route: routeMethod, allow: "PUT"}},
		{"GET", "/1.0/api/token", denied},
		{"POST", "/latest/api/token", noMethod},

		{"GET", "/latest/user-data", target{route: routeUserData, path: "/latest/user-data"}},
		{"GET", "/latest/user-data/", target{route: routeUserData, path: "/latest/user-data/"}},
		{"GET", "/latest/user-data?x", target{route: routeUserData, path: "/latest/user-data"}},
		{"GET", "/latest/User-Data", denied},
		{"GET", "/latest/user-data/more", denied},
		{"GET", "/user-data", denied},
		{"GET", "/iam/user-data", denied},
		{"GET", "/a/latest/user-data", denied},
		{"GET", "/latest/user-data%20", invalid},
		{"GET", "/latest/user-data/.", invalid},

		{"GET", "/latest/meta-data/identity-credentials/ec2/info", denied},
		{"GET", "/latest/meta-data/identity-credentials/ec2/security-credentials/ec2-instance/", denied},
		{"GET", "/latest/meta-data/Identity-Credentials", denied},
		{"GET", "/latest/dynamic/instance-identity/pkcs7", denied},
		{"GET", "/latest/dynamic/instance-identity/rsa2048", denied},
		{"GET", "/latest/dynamic/instance-identity/signature", denied},
		{"GET", "/latest/dynamic/instance-identity/RSA2048/", denied},
		{"GET", "/latest/meta-data/public-keys/0/openssh-key", denied},
		{"GET", "/latest/meta-data/managed-ssh-keys/active-keys/ec2-user", denied},
		{"GET", "/latest/meta-data/managed-ssh-keys/signer-cert/", denied},
		{"GET", "/latest/meta-data/x/signer-ocsp", denied},
		{"GET", "/latest/meta-data/active-keys", denied},
		{"GET", "/latest/meta-data/new-Credentials-of-tomorrow", denied},
		{"GET", "/latest/meta-data/session-tokens", denied},
		{"GET", "/latest/meta-data/apikeys", denied},
		{"GET", "/latest/meta-data/signatures/0", denied},
		{"GET", "/latest/meta-data/secrets", denied},
		{"GET", "/latest/meta-data/passwords", denied},

		{"GET", "/", pass("/")},
		{"GET", "//", pass("/")},
		{"GET", "/latest", pass("/latest")},
		{"GET", "/latest/meta-data/", pass("/latest/meta-data/")},
		{"GET", "/latest//meta-data//mac", pass("/latest/meta-data/mac")},
		{"GET", "/latest/meta-data/mac//", pass("/latest/meta-data/mac/")},
		{"GET", "/latest/dynamic/instance-identity/document", pass("/latest/dynamic/instance-identity/document")},
		{"GET", "/2021-03-23/meta-data/placement/region?", pass("/2021-03-23/meta-data/placement/region")},
		{"GET", "/latest/meta-data/tags/instance/Name:a+b=c@d", pass("/latest/meta-data/tags/instance/Name:a+b=c@d")},

		{"GET", "http://169.254.169.254/latest/meta-data/mac", pass("/latest/meta-data/mac")},
		{"GET", "HTTP://[fd00:ec2::254]:80/latest/meta-data/mac", pass("/latest/meta-data/mac")},
		{"GET", "http://user:password@evil.example//latest/meta-data/mac", pass("/latest/meta-data/mac")},
		{"GET", "http://169.254.169.254/", pass("/")},
		{"GET", "http://169.254.169.254", invalid},
		{"GET", "http:///latest/meta-data/mac", invalid},
		{"GET", "http://host?/latest/meta-data/mac", invalid},
		{"GET", "http://host#/latest/meta-data/mac", invalid},
		{"GET", `http://host\@other/latest/meta-data/mac`, invalid},
		{"GET", "https://169.254.169.254/latest/meta-data/mac", invalid},
		{"GET", "ftp://169.254.169.254/latest/meta-data/mac", invalid},
		{"GET", "latest/meta-data/mac", invalid},
		{"GET", "169.254.169.254:80", invalid},
		{"CONNECT", "169.254.169.254:80", invalid},
		{"CONNECT", "/latest/meta-data/mac", invalid},
		{"GET", "*", invalid},
		{"OPTIONS", "*", invalid},
		{"GET", "", invalid},

		{"GET", `/latest\meta-data\iam`, invalid},
		{"GET", "/latest/meta-data/mac?a\\b", invalid},
		{"GET", "/latest/meta-data/mac?a;b", invalid},
		{"GET", "/latest/meta-data/mac?a%41", invalid},
		{"GET", "/latest/meta-data/mac?\x7f", invalid},
		{"GET", "/latest/meta-data/mac#fragment", invalid},
		{"GET", "/latest/meta-data/ma\x00c", invalid},
		{"GET", "/latest/meta-data/ma\tc", invalid},
		{"GET", "/latest/meta-data/ma c", invalid},
		{"GET", "/latest/meta-data/mäc", invalid},
		{"GET", "/latest/meta-data/\u212aey", invalid}, // the Kelvin sign folds to k
		{"GET", "/latest/meta-data/mac;x", invalid},
		{"GET", "/latest/./meta-data/mac", invalid},
		{"GET", "/latest/x/../meta-data/mac", invalid},
		{"GET", "/..", invalid},
		{"GET", "/latest/%2e%2e/latest/meta-data/mac", invalid},
		{"GET", "/latest/meta-data/%6dac", invalid},
		{"GET", "/latest/meta-data%2Fmac", invalid},
		{"GET", "/latest/meta-data/mac%00", invalid},
	} {
		t.Run(tt.method+" "+tt.raw, func(t *testing.T) {
			got := classify(tt.method, tt.raw)
			if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(target{})); diff != "" {
				t.Errorf("classify (-want +got):\n%s", diff)
			}
		})
	}
}

func TestClassifyingACredentialPathAllocatesNothing(t *testing.T) {
	if n := testing.AllocsPerRun(100, func() { classify("GET", rolePath+"reader") }); n != 0 {
		t.Errorf("classify allocated %v times", n)
	}
}

// FuzzClassify holds what everything else rests on: what is passed on is canonical, and names no secret in any reading.
func FuzzClassify(f *testing.F) {
	for _, seed := range secretTargets() {
		f.Add("GET", seed)
	}
	f.Add("PUT", "/latest/api/token")
	f.Add("GET", "http://h/latest/meta-data/mac/")
	f.Add("GET", rolePath+"arn%3Aaws%3Aiam%3A%3A1%3Arole%2Fx")
	f.Fuzz(func(t *testing.T, method, raw string) {
		got := classify(method, raw)
		if got != classify(method, raw) {
			t.Error("a second look sees something else")
		}
		if got.route != routeInvalid && got.route != routeMethod && method != "GET" && method != "HEAD" && method != "PUT" {
			t.Errorf("method %q is served as %v", method, got.route)
		}
		if got.route == routeRole || got.route == routeExtendedRole {
			if got.role == "" || strings.ContainsAny(got.role, "%\\;\x00 ") || strings.HasPrefix(got.role, "/") || strings.HasSuffix(got.role, "/") {
				t.Errorf("role %q", got.role)
			}
		}
		if got.path == "" {
			return
		}
		if got.path[0] != '/' || strings.Contains(got.path, "//") || strings.ContainsAny(got.path, "%\\;?# ") {
			t.Errorf("path %q is not canonical", got.path)
		}
		for _, b := range []byte(got.path) {
			if b <= ' ' || b >= 0x7f {
				t.Errorf("path %q has odd bytes", got.path)
			}
		}
		for s := range strings.SplitSeq(strings.ToLower(got.path), "/") {
			switch {
			case s == "." || s == "..":
				t.Errorf("path %q has dot segments", got.path)
			case s == "iam", strings.Contains(s, "credentials"), strings.Contains(s, "token"), strings.Contains(s, "keys"),
				s == "pkcs7", s == "rsa2048", s == "signature", s == "user-data" && got.route != routeUserData:
				t.Errorf("path %q names a secret", got.path)
			}
		}
		if again := classify("GET", got.path); again.path != got.path || again.route != got.route {
			t.Errorf("path %q is understood as %+v", got.path, again)
		}
	})
}
