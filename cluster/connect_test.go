package cluster_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/client-go/rest"

	"pod2role/cluster"
	"pod2role/sandbox/kubeapi"
)

func TestConnectReadsAKubeconfigAndItsToken(t *testing.T) {
	certificate, authority, err := kubeapi.SelfSigned()
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, server: kubeapi.New(kubeapi.Config{Token: "s3cret", Certificate: &certificate})}
	r.pod("a")
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	r.must(err)
	r.background(func(ctx context.Context) error { return r.server.Run(ctx, ln) })
	data, err := kubeapi.Kubeconfig("https://"+ln.Addr().String(), "s3cret", authority)
	r.must(err)
	path := filepath.Join(t.TempDir(), "config")
	r.must(os.WriteFile(path, data, 0o600))
	clients, err := cluster.Connect(path, "1.2.3")
	r.must(err)
	r.Cluster, err = cluster.New(cluster.Config{Client: clients.Core, Metadata: clients.Metadata, Node: node})
	r.must(err)
	r.background(r.Run)
	r.must(r.WaitForSync(r.patience()))
	if r.Pod("a") == nil {
		t.Error("the pod is not known")
	}
	if got := r.server.Requests()[0].UserAgent; got != "pod2role/1.2.3" {
		t.Errorf("asks as %q", got)
	}
	if _, err := cluster.Connect(filepath.Join(t.TempDir(), "none"), ""); err == nil || !strings.Contains(err.Error(), "reading kubeconfig") {
		t.Errorf("a kubeconfig that does not exist: %v", err)
	}
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	if _, err := cluster.Connect("", ""); err == nil || !strings.Contains(err.Error(), "give a kubeconfig") {
		t.Errorf("outside of a cluster: %v", err)
	}
}

func TestNewRefusesWhatItCannotWorkWith(t *testing.T) {
	_, err := cluster.New(cluster.Config{})
	if err == nil || !strings.Contains(err.Error(), "clients") || !strings.Contains(err.Error(), "name of this node") {
		t.Errorf("got %v", err)
	}
}

func TestTheMetricsTellOfTheWatches(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	clients, err := cluster.ConnectTo(&rest.Config{Host: "http://127.0.0.1:1"}, "test")
	if err != nil {
		t.Fatal(err)
	}
	cfg := cluster.Config{Client: clients.Core, Metadata: clients.Metadata, Node: node, Registerer: registry}
	if _, err := cluster.New(cfg); err != nil {
		t.Fatal(err)
	}
	const want = `
# HELP pod2role_cluster_watch_connected Whether a watch is open.
# TYPE pod2role_cluster_watch_connected gauge
pod2role_cluster_watch_connected{resource="namespaces"} 0
pod2role_cluster_watch_connected{resource="pods"} 0
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "pod2role_cluster_watch_connected"); err != nil {
		t.Error(err)
	}
	if _, err := cluster.New(cfg); err == nil {
		t.Error("New registered the metrics twice")
	}
}
