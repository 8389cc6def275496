//go:build cluster

package cluster_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"pod2role/e2e/testnet"
)

// patience bounds every wait for the cluster.
const patience = 3 * time.Minute

// daemons selects the daemon's pods.
const daemons = "app.kubernetes.io/name=pod2role"

// node is the cluster, seen from its only node, and AWS, seen from outside.
type node struct {
	*testnet.Namespace
	*cloud
	api kubernetes.Interface
}

func newNode(t *testing.T) *node {
	t.Helper()
	n := &node{Namespace: testnet.Open(t, "tb-node"), cloud: newCloud(t)}
	config, err := clientcmd.RESTConfigFromKubeConfig([]byte(n.run(t, "sh", "-c", `cat "$KUBECONFIG"`)))
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1 // no limit: pods are to come at once
	config.Proxy = func(*http.Request) (*url.URL, error) { return nil, nil }
	config.Dial = func(ctx context.Context, _, address string) (net.Conn, error) { return n.Dial(ctx, address) }
	if n.api, err = kubernetes.NewForConfig(config); err != nil {
		t.Fatal(err)
	}
	return n
}

// run runs a command on the node, in all its namespaces, and returns what it printed. The test ends if it fails.
func (n *node) run(t *testing.T, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience) // tests clean up with it as well
	defer cancel()
	out, err := exec.CommandContext(ctx, "bed/in", append([]string{"node"}, args...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("on the node: %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// install installs the chart with the image, and waits until the daemon is ready. What the daemon can find out by itself,
// such as region, base ARN and its own credentials, it is not told. The test's end uninstalls it.
func (n *node) install(t *testing.T, options string) {
	t.Helper()
	chart, err := filepath.Abs("../../charts/pod2role")
	if err != nil {
		t.Fatal(err)
	}
	values := filepath.Join(t.TempDir(), "values.yaml")
	if err := os.WriteFile(values, fmt.Appendf(nil, `
image: {repository: testbed.local/pod2role, tag: cluster}
env: [{name: AWS_ENDPOINT_URL_STS, value: "http://%s"}]
options: {%s}
`, stsAddr, options), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the daemon's log:\n%s", n.run(t, "kubectl", "-n", "kube-system", "logs", "-l", daemons, "--tail=200"))
		}
		n.uninstall(t)
	})
	n.run(t, "helm", "install", "pod2role", chart, "-n", "kube-system", "-f", values)
	n.rolledOut(t)
}

// rolledOut waits until the DaemonSet's pod is ready, and the newest.
func (n *node) rolledOut(t *testing.T) {
	t.Helper()
	n.run(t, "kubectl", "-n", "kube-system", "rollout", "status", "daemonset/pod2role", "--timeout=2m")
}

// uninstall uninstalls the chart, if it is installed, and waits for the daemon's end.
func (n *node) uninstall(t *testing.T) {
	t.Helper()
	n.run(t, "helm", "uninstall", "pod2role", "-n", "kube-system", "--ignore-not-found")
	n.run(t, "kubectl", "-n", "kube-system", "wait", "pod", "-l", daemons, "--for=delete", "--timeout=1m")
}

// view reads a view of the debug endpoint, which only the node can reach.
func (n *node) view(t *testing.T, path string, into any) {
	t.Helper()
	answer, err := n.HTTPClient().Get("http://127.0.0.1:8183/debug/" + path)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		t.Fatalf("the debug view %s: %s", path, answer.Status)
	}
	if err := json.NewDecoder(answer.Body).Decode(into); err != nil {
		t.Fatalf("the debug view %s: %v", path, err)
	}
}
