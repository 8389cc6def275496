package config

import (
	"fmt"
	"regexp"
)

// check returns what is wrong across options, each with its remedy. given tells which options somebody has set.
func (c *Config) check(given func(name string) bool) []string {
	var problems []string
	problem := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }

	if c.Node == "" {
		problem("--node is required: give the name of this node; in a DaemonSet, set POD2ROLE_NODE from the field spec.nodeName")
	}
	if c.AppPort != 0 && c.AppPort == c.MetricsPort {
		problem("--app-port and --metrics-port are both %d: give the metrics a port of their own, because pods reach the first one", c.AppPort)
	}
	if p := c.DebugAddr.Port(); c.DebugAddr.IsValid() && (p == c.AppPort || p == c.MetricsPort) {
		problem("--debug-addr uses port %d, which --app-port or --metrics-port uses as well: give it another", p)
	}
	if c.AssumeRoleARN != "" && c.SessionTTL > maxChained {
		problem("--iam-role-session-ttl=%s is too long with --assume-role-arn: AWS caps the sessions of a role assumed by a role at %s", short(c.SessionTTL), short(maxChained))
	}
	if c.iptables != "" && c.iptables != c.Redirect {
		if given("redirect") {
			problem("--iptables says that the redirect is %s and --redirect that it is %s: drop --iptables", c.iptables, c.Redirect)
		}
		c.Redirect = c.iptables
	}
	if c.Redirect == "external" && c.Direct == "refuse" {
		problem("--redirect=external needs --direct=allow: a connection that something else redirected cannot be told from one that came directly")
	}
	for _, expression := range c.PassThroughAllow {
		if _, err := regexp.Compile(`^(?:` + expression + `)$`); err != nil {
			problem("--passthrough-allow=%q is not a regular expression (%v): see https://pkg.go.dev/regexp/syntax", expression, err)
		}
	}
	if c.Metadata == "emulate" && c.EmulateZone == "" {
		problem("--metadata=emulate needs --emulate-zone, such as eu-west-1a: SDKs take their region from it")
	}
	if c.HandoverDir != "" && c.ProbeSocket == "" {
		problem("--handover-dir needs --probe-socket: a newly started daemon is probed before it has the metrics port, which until then the old one answers")
	}
	return append(problems, c.checkRules()...)
}

// checkRules returns what is wrong across the options of "pod2role rules".
func (c *Config) checkRules() []string {
	var problems []string
	seen := map[bool]bool{}
	for _, a := range c.HostIP {
		if seen[a.Is4()] {
			problems = append(problems, "--host-ip is given twice for the same address family: give one address for IPv4 and one for IPv6")
		}
		seen[a.Is4()] = true
	}
	return problems
}
