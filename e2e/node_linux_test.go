package e2e_test

import (
	"context"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"pod2role/e2e/testnet"
	"pod2role/sandbox/cnirecord"
	"pod2role/sandbox/imds"
	"pod2role/sandbox/kubeapi"
	"pod2role/sandbox/sts"
)

const (
	nodeName = "node-1"
	account  = "111122223333"
	baseARN  = "arn:aws:iam::" + account + ":role/"
	// The metadata namespace's end of the link to the node: where STS listens, for the daemon and for pods.
	stsAddr = "10.0.0.1:8080"
)

// node is a node with the metadata service, STS and the API server, before the daemon starts. When its test ends it
// has checked that no pod ever reached the metadata service.
type node struct {
	*testnet.Net
	imds    *imds.Server
	sts     *sts.Server
	api     *kubeapi.Server
	records *cnirecord.Writer // nil: the runtime keeps none
	dir     string
	options options

	ahead atomic.Int64 // how far the API server's clock, a time.Duration, is ahead of the machine's
}

type options struct {
	noRecords bool
	ipv6      bool
	tokens    imds.Tokens
}

// newNode builds a node without pods. Namespace shop allows the roles shop-*, and lab none.
func newNode(t *testing.T, topology testnet.Topology, o options) *node {
	t.Helper()
	certificate, authority, err := kubeapi.SelfSigned()
	if err != nil {
		t.Fatal(err)
	}
	n := &node{Net: testnet.New(t, topology, testnet.Options{IPv6: o.ipv6}), dir: t.TempDir(), options: o}
	n.imds = imds.New(imds.Config{
		Account: account, Tokens: o.tokens, Paths: imds.Lenient, Extended: true,
		UserData: "#!/bin/sh\n", InstanceTags: map[string]string{"Name": "worker"},
	})
	n.sts = sts.New(sts.Config{Account: account, Callers: map[string]string{imds.NodeAccessKeyID: n.imds.CallerARN()}})
	n.api = kubeapi.New(kubeapi.Config{
		Token: "e2e", Certificate: &certificate,
		Now: func() time.Time { return time.Now().Add(time.Duration(n.ahead.Load())) },
	})

	serve(t, "the metadata service", n.Metadata.Listen(t, "tcp", testnet.MetadataAddr+":80"), n.imds.Serve)
	if o.ipv6 {
		serve(t, "the metadata service", n.Metadata.Listen(t, "tcp", "["+testnet.MetadataAddr6+"]:80"), n.imds.Serve)
	}
	serve(t, "STS", n.Metadata.Listen(t, "tcp", stsAddr), n.sts.Serve)
	api := n.Node.Listen(t, "tcp", "127.0.0.1:0")
	serve(t, "the API server", api, func(ctx context.Context, l net.Listener) error {
		return n.Node.Do(func() error { return n.api.Run(ctx, l) }) // after an outage it listens anew
	})
	kubeconfig, err := kubeapi.Kubeconfig("https://"+api.Addr().String(), "e2e", authority)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(n.kubeconfig(), kubeconfig, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(n.results(), 0o700); err != nil {
		t.Fatal(err)
	}
	if !o.noRecords {
		n.records = cnirecord.New(cnirecord.Config{Dir: n.results()})
	}
	n.apply(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName}})
	n.namespace(t, "shop", `["shop-*"]`)
	n.namespace(t, "lab", "")
	t.Cleanup(func() { n.checkGuarded(t) })
	return n
}

func (n *node) kubeconfig() string { return filepath.Join(n.dir, "kubeconfig") }
func (n *node) results() string    { return filepath.Join(n.dir, "results") }

// checkGuarded checks that the metadata service has seen no pod, and that nobody but the daemon, for itself, asked for
// a secret.
func (n *node) checkGuarded(t *testing.T) {
	t.Helper()
	pods := netip.MustParsePrefix("10.244.0.0/16")
	pods6 := netip.MustParsePrefix("fd00:244::/32")
	for _, hit := range n.imds.Hits() {
		from := netip.MustParseAddrPort(hit.RemoteAddr).Addr().Unmap()
		if pods.Contains(from) || pods6.Contains(from) {
			t.Errorf("a pod got through to the metadata service: %s asked for %s", from, hit.Target)
		}
	}
	for _, hit := range n.imds.SecretHits() {
		if !strings.HasPrefix(hit.Header.Get("User-Agent"), "aws-sdk-go-v2/") {
			t.Errorf("the daemon asked the metadata service for a secret on behalf of a pod: %s", hit.Target)
		}
	}
}

// serve runs a stand-in until the test ends.
func serve(t *testing.T, what string, l net.Listener, run func(context.Context, net.Listener) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- run(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("%s: %v", what, err)
		}
	})
}

func (n *node) apply(t *testing.T, objects ...kubeapi.Object) {
	t.Helper()
	if err := n.api.Apply(objects...); err != nil {
		t.Fatal(err)
	}
}

// namespace makes a namespace that allows its pods the roles, a JSON array; "" is no annotation.
func (n *node) namespace(t *testing.T, name, allowed string) {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if allowed != "" {
		ns.Annotations = map[string]string{"iam.amazonaws.com/allowed-roles": allowed}
	}
	n.apply(t, ns)
}
