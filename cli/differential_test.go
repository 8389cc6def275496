package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pod2role/sandbox/imds"
)

// TestADocumentIsTheSameThroughTheDaemon asks two metadata services for every document that they list, and for what the
// cloud provider of Kubernetes asks for, directly and through the daemon.
func TestADocumentIsTheSameThroughTheDaemon(t *testing.T) {
	t.Run("sandbox", func(t *testing.T) {
		service := imds.New(imds.Config{
			Account: demoAccount, Region: demoRegion, Extended: true, UserData: "bootstrap", InstanceTags: map[string]string{"Name": "node", "team": "a"},
		})
		service.SetSpot(&imds.SpotNotice{Action: "terminate", Time: time.Unix(2e9, 0)})
		l, err := listenLoopback(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		go service.Serve(t.Context(), l)
		compareDocuments(t, l.Addr().String(), "latest", "1.0", "2021-03-23")
		for _, hit := range service.SecretHits() {
			if !strings.HasPrefix(hit.Header.Get("User-Agent"), "test") {
				t.Errorf("the daemon asked for a secret: %s", hit.Target)
			}
		}
	})
	t.Run("amazon-ec2-metadata-mock", func(t *testing.T) {
		compareDocuments(t, startMock(t), "latest")
	})
}

// compareDocuments holds what the service at addr answers against what a pod gets.
func compareDocuments(t *testing.T, addr string, versions ...string) {
	t.Helper()
	var paths []string
	for _, version := range versions {
		listed := list(t, addr, "/"+version+"/")
		if len(listed) < 40 {
			t.Fatalf("version %s lists %d paths only: %q", version, len(listed), listed)
		}
		paths = append(paths, listed...)
		paths = append(paths, asked(t, addr, version)...)
	}
	paths = append(paths, "/", "/latest/meta-data/no-such-thing", "/latest/dynamic/no-such-thing")
	slices.Sort(paths)
	inWorld(t, func(ctx context.Context, w *world) {
		p := w.pod(t, "web", "shop-web")
		same, denied := 0, 0
		for _, path := range slices.Compact(paths) {
			for _, spelling := range []string{strings.TrimSuffix(path, "/"), strings.TrimSuffix(path, "/") + "/"} {
				direct, daemon := documentOf(ctx, t, http.DefaultTransport, addr, cmp.Or(spelling, "/")), documentOf(ctx, t, p.transport(), w.app, cmp.Or(spelling, "/"))
				switch {
				case own(spelling):
					if daemon.code != http.StatusOK || daemon.body == direct.body {
						t.Errorf("%s: %+v, want the pod's own", spelling, daemon)
					}
				case secret(spelling):
					denied++
					if daemon.code < 400 || daemon.code > 499 {
						t.Errorf("%s: %+v, want a refusal", spelling, daemon)
					}
				default:
					same++
					if daemon != direct {
						t.Errorf("%s: %+v, want what the service says: %+v", spelling, daemon, direct)
					}
				}
			}
		}
		t.Logf("%d documents are the same, %d are refused", same, denied)
	}, "--metadata-addr="+addr, "--metadata-rate-per-source=1000", "--max-connections-per-source=4096")
}

// own tells the paths that the daemon answers for the pod.
func own(path string) bool {
	_, rest, _ := strings.Cut(strings.Trim(path, "/"), "/")
	return slices.Contains([]string{"meta-data/iam/info", "meta-data/iam/security-credentials", "meta-data/iam/security-credentials-extended"}, rest)
}

// secret tells the paths that no pod gets, without the daemon's own help.
func secret(path string) bool {
	return slices.ContainsFunc(strings.Split(path, "/"), func(segment string) bool {
		return slices.Contains([]string{
			"iam", "identity-credentials", "user-data", "pkcs7", "rsa2048", "signature", "public-keys", "managed-ssh-keys",
		}, segment)
	})
}

// asked returns what https://github.com/kubernetes/cloud-provider-aws asks for, whether the service has it or not.
func asked(t *testing.T, addr, version string) []string {
	t.Helper()
	base := "/" + version + "/meta-data/"
	mac := documentOf(t.Context(), t, http.DefaultTransport, addr, base+"mac").body
	paths := []string{"/" + version + "/dynamic/instance-identity/document"}
	for _, path := range []string{
		"instance-id", "instance-type", "local-hostname", "local-ipv4", "hostname", "public-hostname", "public-ipv4", "ipv6", "mac",
		"placement/availability-zone", "placement/region", "placement/availability-zone-id", "placement/group-name", "placement/host-id",
		"services/domain", "services/partition", "network/interfaces/macs/",
		"network/interfaces/macs/" + mac + "/", "network/interfaces/macs/" + mac + "/device-number", "network/interfaces/macs/" + mac + "/interface-id",
		"network/interfaces/macs/" + mac + "/local-ipv4s", "network/interfaces/macs/" + mac + "/ipv6s", "network/interfaces/macs/" + mac + "/public-ipv4s",
		"network/interfaces/macs/" + mac + "/vpc-id", "network/interfaces/macs/" + mac + "/subnet-id", "network/interfaces/macs/" + mac + "/vpc-ipv4-cidr-blocks",
	} {
		paths = append(paths, base+path)
	}
	return paths
}

// list walks the service's listings from dir downwards, and returns all that they name.
func list(t *testing.T, addr, dir string) []string {
	t.Helper()
	paths := []string{dir}
	for entry := range strings.FieldsSeq(documentOf(t.Context(), t, http.DefaultTransport, addr, dir).body) {
		if strings.Count(dir, "/") == 2 && entry != "user-data" && !strings.HasSuffix(entry, "/") {
			entry += "/" // a version lists its directories without a slash
		}
		if strings.HasSuffix(entry, "/") {
			paths = append(paths, list(t, addr, dir+entry)...)
		} else {
			paths = append(paths, dir+entry)
		}
	}
	return paths
}

// document is what is compared of an answer.
type document struct {
	code        int
	contentType string
	body        string
}

func documentOf(ctx context.Context, t *testing.T, transport http.RoundTripper, addr, path string) document {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("User-Agent", "test")
	response, err := transport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return document{response.StatusCode, response.Header.Get("Content-Type"), string(body)}
}

// transport sends from the pod's address.
func (p demoPod) transport() http.RoundTripper {
	dialer := &net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(p.addr, 0))}
	return &http.Transport{DialContext: dialer.DialContext, DisableKeepAlives: true}
}

// startMock builds and runs AWS's own mock (https://github.com/aws/amazon-ec2-metadata-mock), as a process until the
// test ends, and returns its address. It is in a module of its own, e2e/aemm, for what it depends on.
func startMock(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	program := filepath.Join(dir, "mock")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, "github.com/aws/amazon-ec2-metadata-mock/cmd")
	build.Dir = "../e2e/aemm"
	if out, err := build.CombinedOutput(); err != nil {
		t.Skipf("AWS's mock cannot be built, as without a module proxy: %v\n%s", err, out)
	}
	l, err := listenLoopback(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().(*net.TCPAddr)
	l.Close() // it is free now
	mock := exec.CommandContext(t.Context(), program, "--hostname", addr.IP.String(), "--port", fmt.Sprint(addr.Port))
	mock.Dir = dir
	mock.Env = []string{"HOME=" + dir, "PATH=" + os.Getenv("PATH")}
	if err := mock.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = mock.Wait() }) // the test's context has ended it
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.After(30 * time.Second); ; {
		c, err := new(net.Dialer).DialContext(t.Context(), "tcp", addr.String())
		if err == nil {
			c.Close()
			return addr.String()
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("the mock does not answer: %v", err)
		}
	}
}
