package e2e_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"pod2role/e2e/testnet"
	"pod2role/sandbox/imds"
	"pod2role/sandbox/sts"
)

const (
	metadata  = testnet.MetadataAddr + ":80"
	metadata6 = "[" + testnet.MetadataAddr6 + "]:80"

	listPath  = "/latest/meta-data/iam/security-credentials/"
	tokenPath = "/latest/api/token"
)

// answer is what a pod was told.
type answer struct {
	code   int
	header http.Header
	body   string
}

// get asks the metadata service as a program in the pod does. Headers are alternating names and values.
func (p *pod) get(t *testing.T, target string, headers ...string) answer {
	t.Helper()
	return p.ask(t, metadata, http.MethodGet, target, headers...)
}

// ask sends one request from the pod, on a connection of its own, exactly as it is written. No answer may hold a secret
// of the node's.
func (p *pod) ask(t *testing.T, addr, method, target string, headers ...string) answer {
	t.Helper()
	a, err := exchange(t.Context(), p.Namespace, addr, method, target, headers...)
	if err != nil {
		t.Fatalf("%s asks for %s %s: %v", p, method, target, err)
	}
	p.node.checkLeaks(t, p.String(), method+" "+target, a)
	return a
}

func (n *node) checkLeaks(t *testing.T, who, request string, a answer) {
	t.Helper()
	if leaks := n.imds.Leaks(fmt.Appendf(nil, "%v\n%s", a.header, a.body)); leaks != nil {
		t.Errorf("%s was given the node's secrets %q in answer to %s", who, leaks, request)
	}
}

// exchange sends one request from a namespace and reads its answer.
func exchange(ctx context.Context, from *testnet.Namespace, addr, method, target string, headers ...string) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	conn, err := from.Dial(ctx, addr)
	if err != nil {
		return answer{}, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	return exchangeOn(conn, addr, method, target, headers...)
}

func exchangeOn(conn net.Conn, host, method, target string, headers ...string) (answer, error) {
	var request strings.Builder
	fmt.Fprintf(&request, "%s %s HTTP/1.1\r\nHost: %s\r\nUser-Agent: e2e\r\n", method, target, host)
	for i := 0; i+1 < len(headers); i += 2 {
		fmt.Fprintf(&request, "%s: %s\r\n", headers[i], headers[i+1])
	}
	if method == http.MethodPut {
		request.WriteString("Content-Length: 0\r\n")
	}
	request.WriteString("\r\n")
	if _, err := io.WriteString(conn, request.String()); err != nil {
		return answer{}, err
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: method})
	if err != nil {
		return answer{}, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return answer{code: response.StatusCode, header: response.Header, body: string(body)}, err
}

// token asks for an IMDSv2 token and returns it as a header.
func (p *pod) token(t *testing.T, addr string) []string {
	t.Helper()
	a := p.ask(t, addr, http.MethodPut, tokenPath, imds.TokenTTLHeader, "21600")
	if a.code != http.StatusOK {
		t.Fatalf("%s asks for a token: %d %q", p, a.code, a.body)
	}
	return []string{imds.TokenHeader, a.body}
}

// credentials asks for the role's name and then its credentials, with the headers given, and returns whose they are.
// Where the pod gets none it returns the answer that says so.
func (p *pod) credentials(t *testing.T, addr string, headers ...string) (sts.Session, answer) {
	t.Helper()
	role := p.ask(t, addr, http.MethodGet, listPath, headers...)
	if role.code != http.StatusOK {
		return sts.Session{}, role
	}
	keys := p.ask(t, addr, http.MethodGet, listPath+role.body, headers...)
	if keys.code != http.StatusOK {
		return sts.Session{}, keys
	}
	return p.decode(t, keys.body), keys
}

// decode returns whose session a document of credentials holds.
func (p *pod) decode(t *testing.T, document string) sts.Session {
	t.Helper()
	var keys struct{ Code, AccessKeyId, SecretAccessKey, Token string }
	if err := json.Unmarshal([]byte(document), &keys); err != nil {
		t.Fatalf("%s got %q for its credentials: %v", p, document, err)
	}
	session, err := sts.DecodeCredentials(keys.AccessKeyId, keys.SecretAccessKey, keys.Token)
	if err != nil || keys.Code != "Success" {
		t.Fatalf("%s got the credentials %q: %v", p, document, err)
	}
	return session
}

// expectRole checks that the pod gets credentials of the role, a name.
func (p *pod) expectRole(t *testing.T, role string, headers ...string) {
	t.Helper()
	session, a := p.credentials(t, metadata, headers...)
	if session.RoleARN != baseARN+role {
		t.Errorf("%s got the role %q (%d %q), want %s", p, session.RoleARN, a.code, a.body, role)
	}
}

// expectRefusal checks that the pod gets no credentials, and how it is told.
func (p *pod) expectRefusal(t *testing.T, code int) {
	t.Helper()
	session, a := p.credentials(t, metadata)
	if session.RoleARN != "" || a.code != code {
		t.Errorf("%s got the role %q (%d %q), want %d", p, session.RoleARN, a.code, a.body, code)
	}
}

// expectToken checks that a session token is of the role, a name.
func (p *pod) expectToken(t *testing.T, token, role string) {
	t.Helper()
	session, err := sts.Decode(token)
	if err != nil || session.RoleARN != baseARN+role {
		t.Errorf("%s got a session token of %q (%v), want %s", p, session.RoleARN, err, role)
	}
}

// requests is how many requests of pods the daemon has answered, by its metrics.
func (n *node) requests(t *testing.T) int {
	t.Helper()
	a, err := exchange(t.Context(), n.Node, "127.0.0.1:8182", http.MethodGet, "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	total := 0
	for line := range strings.Lines(a.body) {
		if !strings.HasPrefix(line, "pod2role_proxy_requests_total{") {
			continue
		}
		count, err := strconv.Atoi(strings.TrimSpace(line[strings.LastIndexByte(line, ' '):]))
		if err != nil {
			t.Fatalf("reading the metric %q: %v", line, err)
		}
		total += count
	}
	return total
}
