package credentials_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"pod2role/credentials"
	"pod2role/sandbox/imds"
	"pod2role/sandbox/sts"
)

// metadata is a metadata service that gives one answer for the region's document and one for iam/info.
func metadata(document, info string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodPut:
			w.Header().Set("X-Aws-Ec2-Metadata-Token-Ttl-Seconds", "300")
			_, _ = w.Write([]byte("token"))
		case r.Header.Get("X-Aws-Ec2-Metadata-Token") != "token":
			w.WriteHeader(http.StatusUnauthorized)
		case strings.HasSuffix(r.URL.Path, "/iam/info") && info != "":
			_, _ = w.Write([]byte(info))
		case strings.HasSuffix(r.URL.Path, "/document") && document != "":
			_, _ = w.Write([]byte(document))
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}
}

func info(arn string) string {
	return `{"Code":"Success","LastUpdated":"2026-01-01T00:00:00Z","InstanceProfileArn":"` + arn + `","InstanceProfileId":"AIPA"}`
}

func TestDiscoveryReadsTheInstance(t *testing.T) {
	isolate(t, http.NotFoundHandler())
	for _, tt := range []struct{ region, base string }{
		{"eu-west-1", "arn:aws:iam::111122223333:role/"},
		{"cn-north-1", "arn:aws-cn:iam::111122223333:role/"},
		{"us-gov-east-1", "arn:aws-us-gov:iam::111122223333:role/"},
	} {
		endpoint := serve(t, imds.New(imds.Config{Region: tt.region, Tokens: imds.TokensRequired}))
		if got, err := credentials.DiscoverRegion(t.Context(), endpoint); err != nil || got != tt.region {
			t.Errorf("got region %q, error %v, want %q", got, err, tt.region)
		}
		if got, err := credentials.DiscoverBaseARN(t.Context(), endpoint); err != nil || got != tt.base {
			t.Errorf("got base ARN %q, error %v, want %q", got, err, tt.base)
		}
	}
}

func TestDiscoveryReadsEveryPartition(t *testing.T) {
	for profile, want := range map[string]string{
		"arn:aws-iso-b:iam::111122223333:instance-profile/a/path/node": "arn:aws-iso-b:iam::111122223333:role/",
		"arn:aws-eusc:iam::111122223333:instance-profile/node":         "arn:aws-eusc:iam::111122223333:role/",
	} {
		got, err := credentials.DiscoverBaseARN(t.Context(), serve(t, metadata("", info(profile))))
		if err != nil || got != want {
			t.Errorf("%s: got %q, error %v, want %q", profile, got, err, want)
		}
	}
}

func TestDiscoveryRefusesWhatIsMalformedAtOnce(t *testing.T) {
	for name, answer := range map[string]string{
		"no JSON": "<html>", "no ARN": info(""), "nonsense": info("arn"), "short": info("arn:aws:iam::1:instance-profile/x"),
		"another service": info("arn:aws:s3::111122223333:instance-profile/x"), "foreign partition": info("arn:azure:iam::111122223333:instance-profile/x"),
		"no name": info("arn:aws:iam::111122223333:instance-profile/"), "line break": info(`arn:aws:iam::111122223333:instance-profile/x\n`),
		"no profile": "",
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		got, err := credentials.DiscoverBaseARN(ctx, serve(t, metadata("", answer)))
		if err == nil || got != "" || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: got base ARN %q, error %v, want an error at once", name, got, err)
		}
		cancel()
	}
	for name, answer := range map[string]string{"no JSON": "nope", "nonsense": `{"region":"Mars"}`, "none": ""} {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		if got, err := credentials.DiscoverRegion(ctx, serve(t, metadata(answer, ""))); err == nil || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: got region %q, error %v, want an error at once", name, got, err)
		}
		cancel()
	}
	for _, endpoint := range []string{"", "169.254.169.254", "https://127.0.0.1", "http://", "::"} {
		if _, err := credentials.DiscoverRegion(t.Context(), endpoint); err == nil {
			t.Errorf("%q: got no error, want that it is not an endpoint", endpoint)
		}
		if _, err := credentials.NewSTS(credentials.STSConfig{MetadataEndpoint: endpoint}); err == nil && endpoint != "" {
			t.Errorf("%q: got no error from NewSTS, want that it is not an endpoint", endpoint)
		}
	}
}

func TestDiscoveryWaitsForAServiceThatIsNotReady(t *testing.T) {
	node := imds.New(imds.Config{Region: region})
	node.SetFaults(imds.Faults{EarlyBoot: true})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		_, _ = node.Wait(ctx, 3, nil)
		node.SetFaults(imds.Faults{})
	}()
	if got, err := credentials.DiscoverRegion(t.Context(), serve(t, node)); err != nil || got != region {
		t.Errorf("got region %q, error %v, want %q", got, err, region)
	}
	node.SetFaults(imds.Faults{Outage: imds.Closed})
	stop, stopped := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer stopped()
	if _, err := credentials.DiscoverBaseARN(stop, serve(t, node)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got error %v, want that time is up", err)
	}
}

func TestBaseARNComesFromTheDaemonsIdentityOffEC2(t *testing.T) {
	for caller, want := range map[string]string{
		"arn:aws:iam::444455556666:user/ci/robot":                  "arn:aws:iam::444455556666:role/",
		"arn:aws-cn:sts::444455556666:assumed-role/ops/alice":      "arn:aws-cn:iam::444455556666:role/",
		"arn:aws-us-gov:sts::444455556666:federated-user/bob":      "arn:aws-us-gov:iam::444455556666:role/",
		"arn:aws:iam::444455556666:root":                           "arn:aws:iam::444455556666:role/",
		"arn:aws:iam::4444:user/short-account":                     "",
		"arn:aws:iam:::user/no-account":                            "",
		"arn:aws:sts::444455556666:something-else/that/is/unknown": "",
	} {
		t.Run(caller, func(t *testing.T) {
			isolate(t, sts.New(sts.Config{Callers: map[string]string{ownKey: caller}}))
			user(t)
			got, err := newSTS(t, credentials.STSConfig{Region: region}).BaseARN(t.Context())
			if got != want || (err == nil) != (want != "") {
				t.Errorf("got %q, error %v, want %q", got, err, want)
			}
		})
	}
	server := sts.New(sts.Config{})
	server.SetFaults(sts.Faults{Outage: sts.Unavailable})
	isolate(t, server)
	user(t)
	if _, err := newSTS(t, credentials.STSConfig{Region: region}).BaseARN(t.Context()); err == nil {
		t.Errorf("got no error while STS is down, want one")
	}
}
