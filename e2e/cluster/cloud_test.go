//go:build cluster

package cluster_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"

	"pod2role/e2e/cluster"
	"pod2role/e2e/testnet"
	"pod2role/sandbox/imds"
	"pod2role/sandbox/sts"
)

const (
	account = "111122223333"
	baseARN = "arn:aws:iam::" + account + ":role/"
	// Where STS listens, for the daemon and for pods.
	stsAddr = "10.250.0.1:8080"
)

// cloud is AWS as the node sees it. When its test ends it has checked that no pod ever reached the metadata service.
type cloud struct {
	imds *imds.Server
	sts  *sts.Server
}

func newCloud(t *testing.T) *cloud {
	t.Helper()
	c := &cloud{imds: imds.New(imds.Config{Account: account, Paths: imds.Lenient, Extended: true, MaxHits: 1 << 20})}
	c.sts = sts.New(sts.Config{Account: account, Callers: map[string]string{imds.NodeAccessKeyID: c.imds.CallerARN()}})
	ns := testnet.Open(t, "tb-cloud")
	serve(t, ns.Listen(t, "tcp", "169.254.169.254:80"), c.imds.Serve)
	serve(t, ns.Listen(t, "tcp", stsAddr), c.sts.Serve)
	t.Cleanup(func() {
		for _, trespass := range c.trespasses() {
			t.Error(trespass)
		}
	})
	return c
}

func serve(t *testing.T, l net.Listener, run func(context.Context, net.Listener) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- run(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("listening at %s: %v", l.Addr(), err)
		}
	})
}

// trespasses says which requests of pods the metadata service has seen, and for which secrets the daemon asked it other
// than for itself.
func (c *cloud) trespasses() []string {
	var found []string
	pods := netip.MustParsePrefix("10.251.0.0/24")
	for _, hit := range c.imds.Hits() {
		if from := netip.MustParseAddrPort(hit.RemoteAddr).Addr().Unmap(); pods.Contains(from) {
			found = append(found, fmt.Sprintf("the pod at %s got through to the metadata service with %s %s", from, hit.Method, hit.Target))
		}
	}
	for _, hit := range c.imds.SecretHits() {
		if !strings.HasPrefix(hit.Header.Get("User-Agent"), "aws-sdk-go-v2/") {
			found = append(found, fmt.Sprintf("%s asked the metadata service for a secret: %s %s", hit.RemoteAddr, hit.Method, hit.Target))
		}
	}
	return found
}

// assumed returns how many calls of AssumeRole there were.
func (c *cloud) assumed() int {
	n := 0
	for _, call := range c.sts.Calls() {
		if call.Action == "AssumeRole" {
			n++
		}
	}
	return n
}

// check checks that an attempt brought nothing of the node's, and no role but this one.
func (c *cloud) check(t *testing.T, a cluster.Attempt, role string) {
	t.Helper()
	if leaks := c.imds.Leaks([]byte(a.Error + string(a.Document))); leaks != nil {
		t.Errorf("the pod %s was given the node's secrets %q", a.Pod, leaks)
	}
	if a.Error != "" {
		return
	}
	var d struct{ AccessKeyID, SecretAccessKey, Token string }
	if err := json.Unmarshal(a.Document, &d); err != nil {
		t.Fatal(err)
	}
	session, err := sts.DecodeCredentials(d.AccessKeyID, d.SecretAccessKey, d.Token)
	if err != nil {
		t.Errorf("the credentials of the pod %s: %v", a.Pod, err)
	} else if session.RoleARN != baseARN+role {
		t.Errorf("the pod %s got the role %s, want %s", a.Pod, session.RoleARN, baseARN+role)
	}
}
