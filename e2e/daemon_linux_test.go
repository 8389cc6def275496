package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"pod2role/e2e/testnet"
)

// patience bounds every wait for something that is to happen at once.
const patience = 60 * time.Second

// daemon is a running pod2role.
type daemon struct {
	cmd    *exec.Cmd
	log    *logText
	exited chan struct{}
}

// netAdmin is all that the daemon may do, as the chart has it.
const netAdmin = "--bounding-set=-all,+net_admin"

// ready runs the daemon with the arguments that every test gives, and args, until it is ready.
func (n *node) ready(t *testing.T, args ...string) *daemon {
	t.Helper()
	d := n.start(t, args...)
	d.waitFor(t, "msg=ready")
	return d
}

// start runs the daemon with the arguments that every test gives, and args. What it can find out by itself, such as
// region, base ARN and credentials, it is not told.
func (n *node) start(t *testing.T, args ...string) *daemon {
	t.Helper()
	hostIP := testnet.NodeAddr
	if n.options.ipv6 {
		hostIP += "," + testnet.NodeAddr6
	}
	results := n.results()
	if n.options.noRecords {
		results = ""
	}
	return n.run(t, netAdmin, append([]string{
		"--node=" + nodeName, "--kubeconfig=" + n.kubeconfig(), "--host-ip=" + hostIP, "--cni-results-dir=" + results, "--log-level=debug",
	}, args...)...)
}

// run runs the daemon on the node, as root with few capabilities, until the test ends.
func (n *node) run(t *testing.T, capabilities string, args ...string) *daemon {
	t.Helper()
	d := &daemon{log: newLogText(), exited: make(chan struct{})}
	d.cmd = n.Node.Command("setpriv", append([]string{capabilities, "--inh-caps=-all", "--no-new-privs", program("pod2role"), "run"}, args...)...)
	d.cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + n.dir, "AWS_ENDPOINT_URL_STS=http://" + stsAddr, "GORACE=halt_on_error=1",
	}
	d.cmd.Stdout, d.cmd.Stderr = d.log, d.log
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = d.cmd.Wait() // exitCode says how it ended
		close(d.exited)
	}()
	t.Cleanup(func() {
		_ = d.cmd.Process.Kill()
		<-d.exited
		if strings.Contains(d.log.String(), "DATA RACE") {
			t.Error("the daemon has a data race")
		}
		if leaks := n.imds.Leaks([]byte(d.log.String())); leaks != nil {
			n.logLeaks(t, leaks)
		}
		if t.Failed() {
			t.Logf("the daemon's log:\n%s", d.log)
		}
	})
	return d
}

// logLeaks reports the secrets that were found in a log. The name of the node's role is none there.
func (n *node) logLeaks(t *testing.T, leaks []string) {
	t.Helper()
	for _, leak := range leaks {
		if leak != n.imds.Config().Role {
			t.Errorf("the daemon's log has the secret %s", leak)
		}
	}
}

// waitFor returns when the daemon has logged the text.
func (d *daemon) waitFor(t *testing.T, text string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := d.log.waitFor(ctx, d.exited, text); err != nil {
		t.Fatalf("waiting for the daemon to log %q: %v", text, err)
	}
}

// signal ends the daemon with a signal and waits for its end.
func (d *daemon) signal(t *testing.T, signal os.Signal) {
	t.Helper()
	if err := d.cmd.Process.Signal(signal); err != nil {
		t.Fatal(err)
	}
	d.exitCode(t)
}

// exitCode waits for the daemon's end and returns its exit status, -1 if a signal ended it.
func (d *daemon) exitCode(t *testing.T) int {
	t.Helper()
	select {
	case <-d.exited:
		return d.cmd.ProcessState.ExitCode()
	case <-time.After(patience):
		t.Fatal("the daemon did not end")
		return 0
	}
}

func (d *daemon) running() bool {
	select {
	case <-d.exited:
		return false
	default:
		return true
	}
}

// logText is the daemon's log, on which tests wait.
type logText struct {
	mu      sync.Mutex
	text    strings.Builder
	changed chan struct{}
}

func newLogText() *logText { return &logText{changed: make(chan struct{})} }

// Write implements io.Writer.
func (l *logText) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text.Write(p)
	close(l.changed)
	l.changed = make(chan struct{})
	return len(p), nil
}

// String implements fmt.Stringer.
func (l *logText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func (l *logText) waitFor(ctx context.Context, ended <-chan struct{}, text string) error {
	for {
		l.mu.Lock()
		changed, found := l.changed, strings.Contains(l.text.String(), text)
		l.mu.Unlock()
		if found {
			return nil
		}
		select {
		case <-changed:
		case <-ended:
			if strings.Contains(l.String(), text) {
				return nil
			}
			return errors.New("it ended")
		case <-ctx.Done():
			return fmt.Errorf("nothing like it: %w", ctx.Err())
		}
	}
}
