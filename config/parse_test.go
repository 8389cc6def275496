package config

import (
	"errors"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
)

func TestDefaultsNeedOnlyTheNodesName(t *testing.T) {
	c, err := Parse([]string{"--node=n1"}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	got := []any{c.AppPort, c.Hold, c.NamespaceRestrictions, c.Redirect, c.MetadataAddr, c.DebugAddr, c.CNIResultsDir, c.IMDSTokens, c.Direct}
	want := []any{
		uint16(8181), 5 * time.Second, true, "on", "169.254.169.254", netip.MustParseAddrPort("127.0.0.1:8183"),
		[]string{"/var/lib/cni/results", "/var/lib/cni/cache/results"},
		"optional", "refuse",
	}
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })); diff != "" {
		t.Errorf("defaults (-want +got):\n%s", diff)
	}
}

func TestAFlagWinsOverItsVariableAndAVariableOverTheDefault(t *testing.T) {
	c, err := Parse([]string{"--node", "n1", "--hold=2s"}, []string{"POD2ROLE_HOLD=3s", "POD2ROLE_APP_PORT=9000", "POD2ROLE_PORT=tcp://10.0.0.1:80"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if c.Hold != 2*time.Second || c.AppPort != 9000 {
		t.Errorf("hold %s, port %d; want 2s, 9000", c.Hold, c.AppPort)
	}
}

func TestEveryMistakeIsReportedAtOnceWithItsRemedy(t *testing.T) {
	became := func(flag string) (string, bool) { return "give --kubeconfig instead", flag == "api-server" }
	other := func(Config) []string { return []string{"--default-role is odd"} }
	_, err := Parse([]string{
		"--app-port=http", "--hold=5", "--imds-tokens=maybe", "--bas-role-arn=x", "--api-server=x", "--debug-addr=0.0.0.0:1", "--metadata-addr=a/b",
		"--host-ip=::", "--passthrough-allow=(", "stray", "--iam-role-key=a b", "--sts-rate=NaN", "--assume-role-arn=r", "--iam-role-session-ttl=2h", "--iptables=false", "--redirect=on",
		"--daemonset=pod2role", "--handover-dir=/run/pod2role",
	}, []string{"POD2ROLE_LOG_LEVEL=loud"}, became, other)
	var problems Problems
	if !errors.As(err, &problems) {
		t.Fatalf("error is %v, want Problems", err)
	}
	for _, want := range []string{
		`--app-port="http" must be a port`, `--hold="5" must be a duration`, `--imds-tokens="maybe" must be optional or required`,
		`--bas-role-arn is not a flag of pod2role; did you mean --base-role-arn?`, `--api-server is not a flag of pod2role; give --kubeconfig instead`,
		`--debug-addr="0.0.0.0:1" must be an address of the loopback`, `--metadata-addr="a/b" must be a host`, `--host-ip="::" must be`,
		`--passthrough-allow="(" is not a regular expression`, `"stray" is not a flag`, `--iam-role-key="a b" must be the key`, `--sts-rate="NaN" must be a number`,
		`too long with --assume-role-arn`, `--node is required`, `POD2ROLE_LOG_LEVEL="loud" must be`, `drop --iptables`, `--default-role is odd`,
		`--daemonset="pod2role" must be a namespace and a name`, `--handover-dir needs --probe-socket`,
	} {
		if n := strings.Count(err.Error(), want); n != 1 {
			t.Errorf("%q is reported %d times, want once, in:\n%v", want, n, err)
		}
	}
	if len(problems) != 19 {
		t.Errorf("%d problems, want 19:\n%v", len(problems), err)
	}
}

func TestTheOldSwitchForTheRedirectStillWorks(t *testing.T) {
	for _, tt := range []struct {
		arg, want string
	}{{"--iptables", "on"}, {"--iptables=false", "off"}, {"--redirect=external", "external"}} {
		c, err := Parse([]string{"--node=n", "--direct=allow", tt.arg}, nil, nil)
		if err != nil || c.Redirect != tt.want {
			t.Errorf("%s: redirect is %q, %v; want %q", tt.arg, c.Redirect, err, tt.want)
		}
	}
}

func TestAnEmptyListSwitchesItsSourceOff(t *testing.T) {
	c, err := Parse([]string{"--node=n", "--cni-results-dir="}, nil, nil)
	if err != nil || len(c.CNIResultsDir) != 0 {
		t.Errorf("directories %q, %v; want none", c.CNIResultsDir, err)
	}
}

func TestTheRulesTakeTheDaemonsOptionsThatSayWhatTheyAre(t *testing.T) {
	c, err := ParseRules([]string{"--host-ip=10.0.0.1", "--host-interface", "eni+"}, []string{"POD2ROLE_APP_PORT=9000", "POD2ROLE_NODE=n", "POD2ROLE_HOLD=x"})
	if err != nil {
		t.Fatal(err)
	}
	if c.AppPort != 9000 || c.HostInterface != "eni+" || len(c.HostIP) != 1 || c.Node != "" {
		t.Errorf("got %+v", c)
	}
	if c, err := ParseRules(nil, nil); err != nil || c.AppPort != 8181 || c.HostInterface != "auto" {
		t.Errorf("without options: %+v, %v, want the daemon's defaults", c, err)
	}
	for arg, want := range map[string]string{
		"--hold=1s": "--hold is not a flag of pod2role", "--app-port=x": "must be a port", "--host-ip=10.0.0.1,10.0.0.2": "given twice", "x": "not a flag",
	} {
		if _, err := ParseRules([]string{arg}, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", arg, err, want)
		}
	}
	if _, err := ParseRules([]string{"--help"}, nil); !errors.Is(err, pflag.ErrHelp) {
		t.Errorf("--help: got %v, want ErrHelp", err)
	}
	if help := RulesHelp(); !strings.Contains(help, "--app-port ") || strings.Contains(help, "--hold ") {
		t.Errorf("the help is\n%s", help)
	}
}

func TestHelpIsAsked(t *testing.T) {
	if _, err := Parse([]string{"--help"}, nil, nil); !errors.Is(err, pflag.ErrHelp) {
		t.Errorf("error is %v, want ErrHelp", err)
	}
}

func TestMetadataAddresses(t *testing.T) {
	for addr, want := range map[string][2]string{
		"169.254.169.254": {"169.254.169.254", "80"}, "127.0.0.1:1338": {"127.0.0.1", "1338"}, "imds": {"imds", "80"},
		"fd00:ec2::254": {"fd00:ec2::254", "80"}, "[fd00:ec2::254]:81": {"fd00:ec2::254", "81"}, "[fd00:ec2::254]": {"fd00:ec2::254", "80"},
	} {
		c, err := Parse([]string{"--node=n", "--metadata-addr=" + addr}, nil, nil)
		if host, port := c.MetadataAddrPort(); err != nil || host != want[0] || port != want[1] {
			t.Errorf("%s: %q %q %v, want %q", addr, host, port, err, want)
		}
	}
}

// The table is one fact: each row has a name, a group, a sentence, a default that its own rule accepts, and is in the
// documentation.
func TestTheTableIsWhole(t *testing.T) {
	names, docs := map[string]bool{}, Markdown()
	var c Config
	for _, o := range options(&c) {
		if names[o.Name] || o.Group == "" || o.Values == "" || !strings.HasSuffix(o.Usage, ".") {
			t.Errorf("--%s: listed twice, or without a group, values or a sentence", o.Name)
		}
		names[o.Name] = true
		for _, v := range o.split([]string{o.Default}) {
			if err := o.set(v); o.Default != "" && err != nil {
				t.Errorf("--%s: default %q %v", o.Name, v, err)
			}
		}
		if !strings.Contains(docs, "`--"+o.Name+"` | `"+o.Env()+"`") || !strings.Contains(Help(), "--"+o.Name+" ") {
			t.Errorf("--%s is not documented", o.Name)
		}
	}
}

func TestTheDocumentationIsUpToDate(t *testing.T) {
	got, err := os.ReadFile("../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(Markdown(), string(got)); diff != "" {
		t.Errorf("docs/configuration.md is not what `make docs` writes (-want +got):\n%s", diff)
	}
}

func FuzzParse(f *testing.F) {
	f.Add("--node=n\n--hold=5s", "POD2ROLE_APP_PORT=1")
	f.Add("--app-port\n--host-ip=::1,10.0.0.1", "")
	f.Fuzz(func(t *testing.T, args, environ string) {
		c, err := Parse(strings.Split(args, "\n"), strings.Split(environ, "\n"), nil)
		if err == nil && (c.Node == "" || c.AppPort == 0 || c.AppPort == c.MetricsPort) {
			t.Errorf("accepted %q %q as %+v", args, environ, c)
		}
	})
}
