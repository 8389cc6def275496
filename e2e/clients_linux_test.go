package e2e_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pod2role/e2e/testnet"
	"pod2role/sandbox/imds"
	"pod2role/sandbox/sts"
)

// searchPath is where pods find programs: where distributions put them.
const searchPath = "/usr/local/bin:/usr/bin:/bin"

// client is a program that asks STS who it is, with the default credential chain of its SDK and nothing set.
type client struct {
	name    string
	command []string // its first element is a path, or a name to be searched
	needs   []string // files without which it cannot run, and what says that they are right
}

func clients() []client {
	const endpoint = "http://" + stsAddr
	return []client{
		{"AWS CLI", []string{"aws", "sts", "get-caller-identity", "--endpoint-url", endpoint, "--query", "Arn", "--output", "text"}, nil},
		{"botocore", []string{"python3", "clients/botocore_client.py", endpoint}, nil},
		{"Go SDK v2", []string{program("sdkv2"), endpoint}, nil},
		{"Go SDK v1", []string{program("sdkv1"), endpoint}, nil},
		{"JS SDK v3", []string{"node", "clients/js/whoami.mjs", endpoint}, []string{"clients/js/node_modules/@aws-sdk/client-sts/package.json"}},
	}
}

func TestClients(t *testing.T) {
	for _, tt := range []struct {
		topology testnet.Topology
		node     imds.Tokens
		pods     string
	}{
		{testnet.Bridge, imds.TokensOptional, "optional"},
		{testnet.Bridge, imds.TokensRequired, "required"},
		{testnet.Routed, imds.TokensRequired, "optional"},
		{testnet.Routed, imds.TokensOptional, "required"},
	} {
		required := map[imds.Tokens]string{imds.TokensOptional: "optional", imds.TokensRequired: "required"}
		t.Run(fmt.Sprintf("%s: tokens %s for the node and %s for pods", tt.topology, required[tt.node], tt.pods), func(t *testing.T) {
			n := newNode(t, tt.topology, options{tokens: tt.node})
			n.pod(t, "shop", "neighbour", "shop-neighbour")
			p := n.pod(t, "shop", "web", "shop-web")
			n.ready(t, "--imds-tokens="+tt.pods)
			for _, c := range clients() {
				t.Run(c.name, func(t *testing.T) {
					got := p.output(t, c)
					if want := "arn:aws:sts::" + account + ":assumed-role/shop-web/"; !strings.HasPrefix(got, want) {
						t.Errorf("it says that it is %q, want %s…", got, want)
					}
				})
			}
		})
	}
}

// A warm fetch of botocore, which has one attempt of a second, is three requests: token, role, credentials.
func TestBotocoreNeedsThreeRequests(t *testing.T) {
	inEachTopology(t, func(t *testing.T, topology testnet.Topology) {
		n := newNode(t, topology, options{})
		p := n.pod(t, "shop", "web", "shop-web")
		n.ready(t)
		p.expectRole(t, "shop-web")
		before := n.requests(t)
		const fetch = "import botocore.session; print(botocore.session.Session().get_credentials().token)"
		token := p.output(t, client{"botocore", []string{"python3", "-c", fetch}, nil})
		p.expectToken(t, token, "shop-web")
		if got := n.requests(t) - before; got != 3 {
			t.Errorf("it took %d requests, want 3", got)
		}
	})
}

// output runs a client in the pod and returns what it prints, without the line's end. A client that is not installed
// skips the test, or with CI=true fails it.
func (p *pod) output(t *testing.T, c client) string {
	t.Helper()
	path, err := lookPath(c.command[0])
	for _, file := range c.needs {
		if _, missing := os.Stat(file); missing != nil {
			err = missing
		}
	}
	if err != nil {
		missing := fmt.Sprintf("%s is not installed: %v", c.name, err)
		if os.Getenv("CI") == "true" {
			t.Fatal(missing)
		}
		t.Skip(missing)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := p.Command(path, c.command[1:]...)
	context.AfterFunc(ctx, func() {
		if cmd.Process != nil {
			_ = cmd.Process.Kill()
		}
	})
	cmd.Env = []string{"PATH=" + searchPath, "HOME=" + t.TempDir()}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s", c.name, err, stderr.Bytes())
	}
	return strings.TrimSpace(string(out))
}

// lookPath is exec.LookPath in searchPath.
func lookPath(name string) (string, error) {
	if filepath.IsAbs(name) {
		return exec.LookPath(name)
	}
	for _, dir := range filepath.SplitList(searchPath) {
		if path, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("%q is not in %s", name, searchPath)
}

// botocore has one attempt of a second for each request: the first fetch of a role that STS takes its time for fits.
func TestBotocoresOnlyAttemptOutlastsASlowCallToSTS(t *testing.T) {
	inEachTopology(t, func(t *testing.T, topology testnet.Topology) {
		n := newNode(t, topology, options{})
		n.ready(t)
		n.sts.SetFaults(sts.Faults{Outage: sts.Hanging})
		p := n.pod(t, "shop", "web", "shop-web")
		before := n.requests(t)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for n.requests(t)-before < 2 && t.Context().Err() == nil { // the token and the role have been answered
				<-time.After(10 * time.Millisecond)
			}
			<-time.After(700 * time.Millisecond) // what STS takes
			n.sts.SetFaults(sts.Faults{})
		}()
		const fetch = "import botocore.session; print(botocore.session.Session().get_credentials().token)"
		token := p.output(t, client{"botocore", []string{"python3", "-c", fetch}, nil})
		<-ended
		p.expectToken(t, token, "shop-web")
		if got := n.requests(t) - before; got != 3 {
			t.Errorf("it took %d requests, want 3", got)
		}
		if calls := n.sts.Count(baseARN + "shop-web"); calls != 1 {
			t.Errorf("STS was called %d times, want once", calls)
		}
	})
}
