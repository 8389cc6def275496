package cli_test

import (
	"bytes"
	"context"
	"net"
	"strings"
	"testing"

	"pod2role/cli"
)

// command runs a command line and returns its exit status and what it printed.
func command(t *testing.T, args ...string) (status int, out, errors string) {
	t.Helper()
	var o, e bytes.Buffer
	status = cli.Main(t.Context(), args, strings.NewReader(""), &o, &e)
	return status, o.String(), e.String()
}

func TestCommandLines(t *testing.T) {
	for _, tt := range []struct {
		name   string
		args   []string
		status int
		out    string // in standard output
		err    string // in standard error
	}{
		{"nothing", nil, 0, "Usage:", ""},
		{"help of run", []string{"run", "--help"}, 0, "--base-role-arn", ""},
		{"version", []string{"version"}, 0, "pod2role ", ""},
		{"an unknown command", []string{"rnu"}, 2, "", "unknown command"},
		{"an unknown flag of run", []string{"run", "--node=n", "--iptable"}, 2, "", "did you mean --iptables?"},
		{"a flag of kube2iam that is gone", []string{"run", "--node=n", "--api-token=x"}, 2, "", "give --kubeconfig: a token"},
		{"an unknown flag of another command", []string{"demo", "--twice"}, 2, "", "unknown flag: --twice"},
		{"an argument too many", []string{"version", "x"}, 2, "", `unknown command "x"`},
		{"a base ARN that cannot be read", []string{"run", "--node=n", "--base-role-arn=arn:aws:iam::1:role/"}, 2, "", "arn:aws:iam::1:role/"},
		{"a role that cannot be read", []string{"run", "--node=n", "--base-role-arn=arn:aws:iam::111122223333:role/", "--default-role=a b"}, 2, "", "a b"},
		{"a session name template that cannot be read", []string{"run", "--node=n", "--session-name-template={{.Pot}}"}, 2, "", "Pot"},
		{"a probe of what does not exist", []string{"probe", "well"}, 2, "", "well"},
		{"the documentation", []string{"docs"}, 0, "# Configuration", ""},
		{"a kubeconfig that is not there", []string{"run", "--node=n", "--kubeconfig=/nowhere/kubeconfig", "--app-port=" + freePort(t), "--metrics-port=" + freePort(t), "--debug-addr="}, 1, "", "/nowhere/kubeconfig"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			status, out, errors := command(t, tt.args...)
			if status != tt.status || !strings.Contains(out, tt.out) || !strings.Contains(errors, tt.err) {
				t.Errorf("status %d, want %d\nout %q, want %q in it\nerr %q, want %q in it", status, tt.status, out, tt.out, errors, tt.err)
			}
		})
	}
}

// freePort returns a port that nobody used a moment ago.
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

func TestSeveralMistakesAreReportedTogether(t *testing.T) {
	status, _, errors := command(t, "run", "--hold=1", "--base-role-arn=x", "--metrics-port=0")
	for _, want := range []string{"--hold=", "--node is required", "--metrics-port=", `"x"`} {
		if !strings.Contains(errors, want) {
			t.Errorf("%q is missing in:\n%s", want, errors)
		}
	}
	if status != 2 {
		t.Errorf("status %d, want 2", status)
	}
}

func TestAPortInUseNamesWhoUsesItElsewhere(t *testing.T) {
	l, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	status, _, errors := command(t, "run", "--node=n", "--app-port="+port, "--debug-addr=")
	if status != 1 || !strings.Contains(errors, "kube2iam and Kiam use port 8181") || !strings.Contains(errors, port) {
		t.Errorf("status %d, %q", status, errors)
	}
}

func TestTheDemoIsAsItShouldBe(t *testing.T) {
	status, out, errors := command(t, "demo", "--once")
	if status != 0 || strings.Contains(out, "BAD") || !strings.Contains(out, "as it should be.") {
		t.Errorf("status %d, printed\n%s%s", status, out, errors)
	}
}

func TestTheDemoEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	out := &until{text: "It stays up until Ctrl-C", then: cancel}
	if status := cli.Main(ctx, []string{"demo"}, strings.NewReader(""), out, out); status != 0 {
		t.Errorf("status %d", status)
	}
}

// until is a writer that calls then once it has been given the text.
type until struct {
	text string
	then func()
	all  bytes.Buffer
}

func (u *until) Write(p []byte) (int, error) {
	u.all.Write(p)
	if strings.Contains(u.all.String(), u.text) {
		u.then()
	}
	return len(p), nil
}
