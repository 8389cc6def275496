package iptables_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"syscall"
	"testing"

	"github.com/sirupsen/logrus"

	"pod2role/e2e/testnet"
	"pod2role/iptables"
)

// child names, for the test binary started again as a less privileged process, the back end that it is to try.
const child = "POD2ROLE_IPTABLES_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(child) != "" {
		os.Exit(applyAndCheck())
	}
	os.Exit(testnet.Main(m))
}

const (
	proxied  = "the proxy"
	appPort  = 8181
	peerPort = 8182 // kube2iam's or Kiam's, in front of whom we have to be
)

// A rig is a testnet with a listening proxy and the stand-in for the metadata service.
type rig struct {
	*testnet.Net
	real     *testnet.MetadataService
	proxy    []net.Listener
	redirect *iptables.Redirect
}

func config() iptables.Config {
	return iptables.Config{
		NodeAddrs: []netip.Addr{netip.MustParseAddr(testnet.NodeAddr), netip.MustParseAddr(testnet.NodeAddr6)},
		Port:      appPort,
	}
}

func newRig(t *testing.T, topology testnet.Topology, c iptables.Config) *rig {
	t.Helper()
	n := testnet.New(t, topology, testnet.Options{Pods: 2, IPv6: true})
	r := &rig{Net: n, real: n.ServeMetadata(t)}
	for _, a := range []string{testnet.NodeAddr, testnet.NodeAddr6} {
		r.proxy = append(r.proxy, serve(t, n.Node, net.JoinHostPort(a, fmt.Sprint(appPort)), proxied))
	}
	var err error
	if r.redirect, err = iptables.New(c); err != nil {
		t.Fatal(err)
	}
	return r
}

// serve answers every request with the same body.
func serve(t *testing.T, ns *testnet.Namespace, address, body string) net.Listener {
	t.Helper()
	l := ns.Listen(t, "tcp", address)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, body) })}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close() })
	return l
}

func (r *rig) apply(t *testing.T) {
	t.Helper()
	if err := r.Node.Do(func() error { return r.redirect.Apply(t.Context()) }); err != nil {
		t.Fatal(err)
	}
}

func (r *rig) check(t *testing.T) iptables.Status {
	t.Helper()
	var s iptables.Status
	if err := r.Node.Do(func() (err error) { s, err = r.redirect.Check(t.Context()); return err }); err != nil {
		t.Fatal(err)
	}
	return s
}

// nft runs nft in the node's namespace.
func (r *rig) nft(t *testing.T, script string) string {
	t.Helper()
	return r.Node.Run(t, "nft", script)
}

// urls are the metadata service's, by IPv4 and by IPv6.
func urls() []string {
	return []string{testnet.URL(testnet.MetadataAddr, 80, "/"), testnet.URL(testnet.MetadataAddr6, 80, "/")}
}

func ask(from *testnet.Namespace, url string) (string, error) {
	res, err := from.HTTPClient().Get(url)
	if err != nil {
		return "", err
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	return string(body), err
}

func wantAnswer(t *testing.T, from *testnet.Namespace, url, want string) {
	t.Helper()
	if got, err := ask(from, url); err != nil || got != want {
		t.Errorf("%s asks %s: got %q, %v; want %q", from.Name, url, got, err, want)
	}
}

// wantRefused wants the reset that a closed port or the lock gives, at once, not a time-out.
func wantRefused(t *testing.T, from *testnet.Namespace, url string) {
	t.Helper()
	if got, err := ask(from, url); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("%s asks %s: got %q, %v; want %v", from.Name, url, got, err, syscall.ECONNREFUSED)
	}
}

// wantUnseen is the proof: no TCP segment of a pod has come to the real service.
func (r *rig) wantUnseen(t *testing.T) {
	t.Helper()
	if n := r.real.Segments(t); n != 0 {
		t.Errorf("%d segments reached the real metadata service, want none", n)
	}
}

// warnings is a log whose warnings can be waited for.
func warnings() (*logrus.Entry, <-chan string) {
	hook := make(warningHook, 64)
	l := logrus.New()
	l.Out = io.Discard
	l.AddHook(hook)
	return logrus.NewEntry(l), hook
}

type warningHook chan string

func (warningHook) Levels() []logrus.Level {
	return []logrus.Level{logrus.WarnLevel, logrus.ErrorLevel}
}

func (h warningHook) Fire(e *logrus.Entry) error {
	h <- fmt.Sprint(e.Message, e.Data)
	return nil
}

// applyAndCheck is the child: what the daemon does with the kernel, and what it then says.
func applyAndCheck() int {
	ctx, report := context.Background(), map[string]any{}
	status, _ := os.ReadFile("/proc/self/status")
	report["status"] = string(status)
	err := func() error {
		c := config()
		c.Backend = os.Getenv(child)
		r, err := iptables.New(c)
		if err != nil {
			return err
		}
		if err := r.Apply(ctx); err != nil {
			return err
		}
		s, err := r.Check(ctx)
		report["check"] = s
		return err
	}()
	if err != nil {
		report["error"], report["not permitted"] = err.Error(), errors.Is(err, iptables.ErrNotPermitted)
	}
	_ = json.NewEncoder(os.Stdout).Encode(report)
	return 0
}
