package proxy

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"pod2role/sandbox/imds"
)

// startInstance runs an instance's metadata service, and a proxy in front of it.
func startInstance(t testing.TB, instance imds.Config) (*imds.Server, string) {
	t.Helper()
	service := imds.New(instance)
	ln := listenLoopback(t)
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- service.Serve(ctx, ln) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	_, addr := start(t, testConfig("http://"+ln.Addr().String()))
	return service, addr
}

// TestAServiceThatUnderstandsTheWorstGivesNothingAway puts a service behind the proxy that takes every request in the
// worst reading that some server is known to make.
func TestAServiceThatUnderstandsTheWorstGivesNothingAway(t *testing.T) {
	service, addr := startInstance(t, imds.Config{
		Paths: imds.Lenient, Extended: true, UserData: "bootstrap", InstanceTags: map[string]string{"Name": "node"},
	})
	for _, target := range append(secretTargets(), "/", "/latest/", "/latest/meta-data/", "/latest/dynamic/instance-identity/document/",
		"/latest/meta-data/network/interfaces/macs/", "/latest/meta-data/tags/instance/Name", "/~/latest/mac", "/latest:user-data/", "/latest,/meta-data/") {
		for _, method := range []string{"GET", "HEAD", "PUT"} {
			got := ask(t, readerAddr, addr, method, target)
			if leaks := service.Leaks([]byte(got.body)); len(leaks) > 0 {
				t.Errorf("%s %s gives away %v", method, target, leaks)
			}
		}
	}
	for _, hit := range service.SecretHits() {
		t.Errorf("a secret was asked for: %+v", hit)
	}
}

// FuzzPath: no target makes that service give a secret away.
func FuzzPath(f *testing.F) {
	for _, target := range append(secretTargets(), zonePath, "http://h/latest/meta-data/mac") {
		f.Add(target)
	}
	service, addr := startInstance(f, imds.Config{Paths: imds.Lenient, Extended: true, UserData: "bootstrap"})
	f.Fuzz(func(t *testing.T, target string) {
		if strings.ContainsAny(target, "\r\n") {
			t.Skip("it ends the request line")
		}
		conversation(t, addr, request("GET", target, "Connection: close"))
		if hits := service.SecretHits(); len(hits) > 0 {
			t.Errorf("a secret was asked for: %+v", hits)
			service.Reset()
		}
	})
}

// TestAnInstanceThatDemandsTokensIsServedFrom, whatever pods send, and also after it has forgotten ours.
func TestAnInstanceThatDemandsTokensIsServedFrom(t *testing.T) {
	for _, tokens := range []imds.Tokens{imds.TokensOptional, imds.TokensRequired, imds.TokensDisabled} {
		service, addr := startInstance(t, imds.Config{Tokens: tokens})
		for range 2 {
			for path, want := range map[string]string{zonePath + "/": "eu-west-1a", "/latest/meta-data/local-ipv4": "10.0.1.17"} {
				if got := ask(t, readerAddr, addr, "GET", path); got.status != http.StatusOK || got.body != want {
					t.Errorf("mode %d: %s: %+v", tokens, path, got)
				}
			}
			service.RevokeTokens()
		}
	}
}

// TestTheRealServicesTokenEndpointIsNoBusinessOfThePods: theirs are made here.
func TestTheRealServicesTokenEndpointIsNoBusinessOfThePods(t *testing.T) {
	rec := newRecorder(t, func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "", http.StatusServiceUnavailable) })
	_, addr := start(t, testConfig(rec.URL))
	before := time.Now()
	token := fetchToken(t, readerAddr, addr)
	if got := ask(t, readerAddr, addr, "GET", rolePath+"reader", tokenHeader+": "+token); got.status != http.StatusOK {
		t.Errorf("%+v", got)
	}
	if len(rec.hits) > 0 || time.Since(before) > time.Second {
		t.Errorf("the real service was asked %d times", len(rec.hits))
	}
}
