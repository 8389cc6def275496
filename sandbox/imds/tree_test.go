package imds_test

import (
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"pod2role/sandbox/imds"
)

func TestListingsHaveOneEntryALineInBothSlashForms(t *testing.T) {
	s := imds.New(imds.Config{UserData: "x", Role: "node", InstanceTags: map[string]string{"Name": "n1"}})
	tests := map[string]string{
		"/latest":                           "dynamic\nmeta-data\nuser-data",
		"/2021-03-23":                       "dynamic\nmeta-data\nuser-data",
		"/latest/dynamic":                   "instance-identity/",
		"/latest/dynamic/instance-identity": "document\npkcs7\nrsa2048\nsignature",
		"/latest/meta-data/iam":             "info\nsecurity-credentials/",
		"/latest/meta-data/iam/security-credentials": "node",
		"/1.0/meta-data/iam/security-credentials":    "node",
		"/latest/meta-data/public-keys":              "0=sandbox",
		"/latest/meta-data/public-keys/0":            "openssh-key",
		"/latest/meta-data/network/interfaces/macs":  "02:5a:0c:0f:1e:2d/",
		"/latest/meta-data/placement":                "availability-zone\navailability-zone-id\nregion",
		"/latest/meta-data/services":                 "domain\npartition",
		"/latest/meta-data/tags/instance":            "Name",
		"/latest/meta-data/identity-credentials":     "ec2/",
	}
	for target, want := range tests {
		for _, slash := range []string{"", "/"} {
			resp := ask(t, s, "GET", target+slash)
			if got := resp.Body.String(); resp.Code != 200 || got != want {
				t.Errorf("GET %s: %d %q, want 200 %q", target+slash, resp.Code, got, want)
			}
		}
	}
	root := ask(t, s, "GET", "/").Body.String()
	if !strings.HasPrefix(root, "1.0\n") || !strings.HasSuffix(root, "\nlatest") {
		t.Errorf("GET /: %q, want the versions", root)
	}
}

func TestEveryListedEntryIsThere(t *testing.T) {
	s := imds.New(imds.Config{UserData: "x", Extended: true, InstanceTags: map[string]string{"Name": "n1"}})
	s.SetSpot(&imds.SpotNotice{Action: "terminate", Time: time.Now()})
	var walk func(dir string)
	seen := 0
	walk = func(dir string) {
		for entry := range strings.SplitSeq(ask(t, s, "GET", dir).Body.String(), "\n") {
			name, isDir := strings.CutSuffix(entry, "/")
			if number, _, ok := strings.Cut(entry, "="); ok {
				name, isDir = number, true
			}
			isDir = isDir || dir == "/latest/" && entry != "user-data"
			target := dir + name
			if isDir {
				walk(target + "/")
				continue
			}
			seen++
			if resp := ask(t, s, "GET", target); resp.Code != 200 {
				t.Errorf("GET %s: %d", target, resp.Code)
			}
		}
	}
	walk("/latest/")
	if seen < 55 {
		t.Errorf("saw %d documents, want the whole tree", seen)
	}
}

func TestInstanceIsTheConfiguredOne(t *testing.T) {
	s := imds.New(imds.Config{Region: "cn-north-1", Account: "444455556666", InstanceID: "i-1", Role: "n"})
	tests := map[string]string{
		"placement/region":               "cn-north-1",
		"placement/availability-zone":    "cn-north-1a",
		"placement/availability-zone-id": "cnn1-az1",
		"services/domain":                "amazonaws.com.cn",
		"services/partition":             "aws-cn",
		"instance-id":                    "i-1",
		"hostname":                       "ip-10-0-1-17.cn-north-1.compute.internal",
		"network/interfaces/macs/02:5a:0c:0f:1e:2d/owner-id": "444455556666",
	}
	for entry, want := range tests {
		if got := ask(t, s, "GET", "/latest/meta-data/"+entry).Body.String(); got != want {
			t.Errorf("%s: %q, want %q", entry, got, want)
		}
	}
	var doc struct{ AccountID, Region, InstanceID, PrivateIP string }
	if err := json.Unmarshal(ask(t, s, "GET", "/latest/dynamic/instance-identity/document").Body.Bytes(), &doc); err != nil {
		t.Fatal(err)
	}
	want := doc
	want.AccountID, want.Region, want.InstanceID, want.PrivateIP = "444455556666", "cn-north-1", "i-1", "10.0.1.17"
	if diff := cmp.Diff(want, doc); diff != "" {
		t.Errorf("identity document (-want +got):\n%s", diff)
	}
	if got, want := s.RoleARN(), "arn:aws-cn:iam::444455556666:role/n"; got != want {
		t.Errorf("RoleARN() = %q, want %q", got, want)
	}
	if got, want := s.CallerARN(), "arn:aws-cn:sts::444455556666:assumed-role/n/i-1"; got != want {
		t.Errorf("CallerARN() = %q, want %q", got, want)
	}
}

func TestCredentialsAreRenewedAtHalfOfTheirLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := imds.New(imds.Config{CredentialLifetime: time.Hour})
		start := time.Now()
		for _, tt := range []struct{ after, expires time.Duration }{
			{0, 60 * time.Minute},
			{29 * time.Minute, 60 * time.Minute},
			{31 * time.Minute, 90 * time.Minute},
			{125 * time.Minute, 180 * time.Minute},
		} {
			time.Sleep(time.Until(start.Add(tt.after)))
			var got struct{ Code, AccessKeyID, SecretAccessKey, Token, Expiration string }
			body := ask(t, s, "GET", "/latest/meta-data/iam/security-credentials/sandbox-node-role").Body.String()
			if err := json.Unmarshal([]byte(body), &got); err != nil {
				t.Fatal(err)
			}
			want := got
			want.Code, want.AccessKeyID, want.SecretAccessKey = "Success", imds.NodeAccessKeyID, imds.NodeSecretAccessKey
			want.Token, want.Expiration = imds.NodeSessionToken, start.Add(tt.expires).UTC().Format(time.RFC3339)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("after %s (-want +got):\n%s", tt.after, diff)
			}
		}
	})
}

func TestWhatIsOptionalIsMissingByDefault(t *testing.T) {
	s := imds.New(imds.Config{})
	missing := func() {
		t.Helper()
		for _, target := range []string{
			"/latest/user-data", "/latest/meta-data/tags/instance", "/latest/meta-data/spot/instance-action",
			"/latest/meta-data/iam/security-credentials-extended/", "/latest/meta-data/events/recommendations/rebalance",
		} {
			if resp := ask(t, s, "GET", target); resp.Code != 404 {
				t.Errorf("GET %s: %d, want 404", target, resp.Code)
			}
		}
	}
	missing()
	s.SetSpot(&imds.SpotNotice{Action: "terminate", Time: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)})
	want := `{"action":"terminate","time":"2026-01-02T03:04:05Z"}`
	if got := ask(t, s, "GET", "/latest/meta-data/spot/instance-action").Body.String(); got != want {
		t.Errorf("spot/instance-action: %q, want %q", got, want)
	}
	s.SetSpot(nil)
	missing()
}

func TestEverySecretCarriesAMarkerAndIsRecordedAsSecret(t *testing.T) {
	s := imds.New(imds.Config{UserData: "kubelet token", Extended: true})
	found := map[string]bool{}
	var walk func(dir string)
	walk = func(dir string) {
		for entry := range strings.SplitSeq(ask(t, s, "GET", dir).Body.String(), "\n") {
			if strings.HasSuffix(entry, "/") {
				walk(dir + entry)
				continue
			}
			if strings.Contains(entry, "=") {
				continue // a public key, walked below
			}
			s.Reset()
			leaks := s.Leaks(ask(t, s, "GET", dir+entry).Body.Bytes())
			for _, marker := range leaks {
				found[marker] = true
			}
			if got := len(s.SecretHits()) == 1; got != (len(leaks) > 0) {
				// identity-credentials/ec2/info says no secret, but lies among them
				if !strings.HasSuffix(dir+entry, "identity-credentials/ec2/info") {
					t.Errorf("GET %s: recorded as secret: %t, markers %q", dir+entry, got, leaks)
				}
			}
		}
	}
	walk("/latest/meta-data/")
	walk("/latest/meta-data/public-keys/0/")
	walk("/latest/dynamic/instance-identity/")
	for _, marker := range s.Leaks(ask(t, s, "GET", "/latest/user-data").Body.Bytes()) {
		found[marker] = true
	}
	for _, marker := range imds.Markers() {
		if !found[marker] && marker != imds.TokenMarker {
			t.Errorf("marker %q was in no document", marker)
		}
	}
}
