package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"pod2role/handover"
)

// What a process is to be that runs this test binary: the program, or a newcomer that stops at a step of the hand-over.
const (
	processRole = "POD2ROLE_TEST_PROCESS"
	asProgram   = "program"
	asNewcomer  = "newcomer"
)

func TestMain(m *testing.M) {
	switch os.Getenv(processRole) {
	case asProgram:
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		code := Main(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
		stop()
		os.Exit(code)
	case asNewcomer:
		fmt.Println(stopAt(os.Args[1], os.Args[2]))
		select {}
	default:
		os.Exit(m.Run())
	}
}

// stopAt is a newcomer that does not go beyond a step.
func stopAt(dir, step string) string {
	ctx := context.Background()
	p, err := handover.Find(ctx, dir, 0)
	if err == nil && step != "hello" {
		_, _, err = p.Take(ctx)
	}
	if err == nil && step == "serving" {
		err = p.Serving(ctx)
	}
	if err != nil {
		return err.Error()
	}
	return "reached"
}

// nodeWorld is a world whose daemons are processes that share the ports of one node.
type nodeWorld struct {
	*world
	dir     string
	args    []string
	started int
}

// patience bounds every wait for something that is to happen at once; only a failure takes that long.
const patience = 60 * time.Second

func onNode(t *testing.T, use func(ctx context.Context, n *nodeWorld)) {
	t.Helper()
	dir, err := os.MkdirTemp("", "node") //nolint:usetesting // its names may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	ctx, cancel := context.WithCancel(t.Context())
	group, ctx := errgroup.WithContext(ctx)
	n := &nodeWorld{world: &world{}, dir: dir}
	args, err := n.build(ctx, group, dir)
	if err == nil {
		err = n.namespace("shop", `["shop-*"]`)
	}
	if err != nil {
		t.Fatal(err)
	}
	app, metrics, debug := freePort(t), freePort(t), freePort(t)
	n.app = "127.0.0.1:" + app
	n.args = append(args, "--handover-dir="+n.doors(), "--app-port="+app, "--metrics-port="+metrics, "--debug-addr=127.0.0.1:"+debug)
	use(ctx, n)
	cancel()
	if err := group.Wait(); err != nil {
		t.Error(err)
	}
}

func (n *nodeWorld) doors() string { return filepath.Join(n.dir, "doors") }

func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// process is one that runs this test binary.
type process struct {
	t      *testing.T
	cmd    *exec.Cmd
	probe  string
	exited chan struct{}

	mu      sync.Mutex
	said    strings.Builder
	changed chan struct{}
}

// Write implements io.Writer.
func (p *process) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.said.Write(b)
	close(p.changed)
	p.changed = make(chan struct{})
	return len(b), nil
}

// launch runs this test binary in a role until the test ends.
func launch(t *testing.T, role string, args ...string) *process {
	t.Helper()
	p := &process{t: t, cmd: exec.Command(os.Args[0], args...), exited: make(chan struct{}), changed: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), processRole+"="+role)
	p.cmd.Stdout, p.cmd.Stderr = p, p
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = p.cmd.Wait() // ProcessState says how it ended
		close(p.exited)
	}()
	t.Cleanup(func() {
		p.kill()
		if t.Failed() || testing.Verbose() {
			for line := range strings.Lines(p.said.String()) {
				if !strings.Contains(line, "a pod asked") {
					t.Logf("%d: %s", p.cmd.Process.Pid, strings.TrimSpace(line))
				}
			}
		}
	})
	return p
}

// daemonProcess starts a daemon on the node.
func (n *nodeWorld) daemonProcess(t *testing.T, args ...string) *process {
	t.Helper()
	n.started++
	probe := filepath.Join(n.dir, fmt.Sprintf("probe-%d", n.started))
	p := launch(t, asProgram, append(append([]string{"run", "--probe-socket=" + probe}, n.args...), args...)...)
	p.probe = probe
	return p
}

// expect waits until the process has said the text.
func (p *process) expect(text string) {
	p.t.Helper()
	timeout := time.After(patience)
	for {
		p.mu.Lock()
		changed, found := p.changed, strings.Contains(p.said.String(), text)
		p.mu.Unlock()
		if found {
			return
		}
		select {
		case <-changed:
		case <-p.exited:
			p.t.Fatalf("it ended before it said %q", text)
		case <-timeout:
			p.t.Fatalf("it did not say %q", text)
		}
	}
}

func (p *process) hasSaid(text string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Contains(p.said.String(), text)
}

func (p *process) signal(s os.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// end ends the daemon as the kubelet does.
func (p *process) end() {
	p.t.Helper()
	p.signal(syscall.SIGTERM)
	select {
	case <-p.exited:
	case <-time.After(patience):
		p.t.Fatal("it did not end")
	}
	if code := p.cmd.ProcessState.ExitCode(); code != 0 {
		p.t.Errorf("it ended with %d", code)
	}
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.exited
}

// clients are pods that ask all the time, some by one connection for as long as it lasts and some by a new one each time.
// None tries anything twice.
type clients struct {
	stop func()

	mu       sync.Mutex
	requests int
	failures []error
}

func (n *nodeWorld) clients(ctx context.Context, t *testing.T) *clients {
	t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	c := &clients{}
	var running sync.WaitGroup
	c.stop = func() { cancel(); running.Wait() }
	t.Cleanup(c.stop)
	for i := range 4 {
		pod, err := n.webPod(fmt.Sprintf("client-%d", i))
		if err != nil {
			t.Fatal(err)
		}
		token := pod.ask(ctx, http.MethodPut, tokenPath, "X-aws-ec2-metadata-token-ttl-seconds", "21600")
		if token.code != http.StatusOK {
			t.Fatalf("%s got no token: %s", pod, token.outcome())
		}
		running.Go(func() { c.ask(ctx, pod, n.app, token.body, i%2 == 0) })
	}
	return c
}

// webPod starts a pod that may have the role shop-web.
func (n *nodeWorld) webPod(name string) (demoPod, error) {
	return n.world.started("shop", name, "shop-web")
}

// ask asks until ctx ends. The token was given out by the first process.
func (c *clients) ask(ctx context.Context, pod demoPod, to, token string, keepAlive bool) {
	var conn net.Conn
	defer func() {
		if conn != nil {
			_ = conn.Close()
		}
	}()
	for n := 0; wait(ctx, 3*time.Millisecond); n++ {
		var err error
		if conn == nil {
			dialer := &net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(pod.addr, 0)), Timeout: patience}
			if conn, err = dialer.Dial("tcp", to); err == nil {
				_ = conn.(*net.TCPConn).SetLinger(0) // thousands of ports in TIME_WAIT would be in the way of other tests
			}
		}
		last := true
		if err == nil {
			last, err = exchange(conn, listPath, token)
		}
		if err != nil {
			err = fmt.Errorf("%s, keep-alive %t, request %d: %w", pod, keepAlive, n, err)
		}
		if conn != nil && (last || err != nil || !keepAlive) {
			_ = conn.Close()
			conn = nil
		}
		c.mu.Lock()
		c.requests++
		if err != nil {
			c.failures = append(c.failures, err)
		}
		c.mu.Unlock()
	}
}

// exchange sends one request, and reports whether it was the last on its connection.
func exchange(conn net.Conn, path, token string) (last bool, err error) {
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return true, err
	}
	if _, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: 169.254.169.254\r\nX-aws-ec2-metadata-token: %s\r\n\r\n", path, token); err != nil {
		return true, err
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return true, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err == nil && (response.StatusCode != http.StatusOK || string(body) != "shop-web") {
		err = fmt.Errorf("got %d %q", response.StatusCode, body)
	}
	return response.Close, err
}

// soFar returns how many requests there were, and which failed.
func (c *clients) soFar() (requests int, failures error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.requests, errors.Join(c.failures...)
}

// more waits until the clients have asked a few times more.
func (c *clients) more(t *testing.T) {
	t.Helper()
	before, _ := c.soFar()
	deadline := time.Now().Add(patience)
	for now := before; now < before+40; now, _ = c.soFar() {
		if time.Now().After(deadline) {
			t.Fatal("the clients wait")
		}
		<-time.After(time.Millisecond)
	}
}
