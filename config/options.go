package config

// The groups of options, in the order in which help and documentation print them.
const (
	groupCluster   = "Cluster"
	groupRoles     = "Roles"
	groupSessions  = "Sessions"
	groupMetadata  = "Metadata service"
	groupListening = "Listening"
	groupLimits    = "Holding and limits"
	groupRedirect  = "Redirect"
	groupLogging   = "Logging"
)

// Option is one row of the table.
type Option struct {
	Name    string // the flag, without dashes
	Group   string
	Default string // as a user would write it
	Usage   string // one or two sentences
	// Values says what may be given: "host[:port]", "duration", "on|off".
	Values string

	// set parses one value into the Config that the table was made for. A list option gets one call for each element.
	set   func(value string) error
	rules bool   // "pod2role rules" takes it as well
	list  string // what separates the elements of a list; empty: not a list
	bool  bool
}

// Env is the environment variable that sets the option.
func (o Option) Env() string { return envName(o.Name) }

// options returns the table, bound to c.
func options(c *Config) []Option {
	return []Option{
		{Name: "node", Group: groupCluster, Values: "name", set: text(&c.Node),
			Usage: "The node this daemon serves. In a DaemonSet, take it from spec.nodeName. Required."},
		{Name: "kubeconfig", Group: groupCluster, Values: "file", set: text(&c.Kubeconfig),
			Usage: "The kubeconfig to reach the API server with. Without it the pod's own service account is used."},
		{Name: "cluster-name", Group: groupCluster, Values: "name", set: text(&c.ClusterName),
			Usage: "The cluster's name, for session names and session tags."},
		{Name: "cni-results-dir", Group: groupCluster, Values: "directory", list: ",", Default: "/var/lib/cni/results,/var/lib/cni/cache/results", set: list(&c.CNIResultsDir),
			Usage: "Where the container runtime keeps the records of the addresses that CNI plugins gave out. May be given more than once; empty switches this source off."},
		{Name: "daemonset", Group: groupCluster, Values: "namespace/name", set: namespacedName(&c.DaemonSetNamespace, &c.DaemonSet),
			Usage: "The DaemonSet that the daemon belongs to. When it is told to stop after that was deleted, or is no longer for this node, it takes the redirect and the lock with it. Without it they always stay."},

		{Name: "base-role-arn", Group: groupRoles, Values: "ARN", set: text(&c.BaseRoleARN),
			Usage: "What stands in front of a role that is not an ARN: arn:aws:iam::123456789012:role/, with a path if your roles share one."},
		{Name: "auto-discover-base-arn", Group: groupRoles, Values: "true|false", bool: true, Default: "true", set: boolean(&c.AutoDiscoverBaseARN),
			Usage: "Without --base-role-arn, take it from the node's instance profile, or else from the daemon's own identity."},
		{Name: "default-role", Group: groupRoles, Values: "role", set: text(&c.DefaultRole),
			Usage: "The role of pods that name none, nor does their namespace."},
		{Name: "iam-role-key", Group: groupRoles, Values: "annotation", Default: "iam.amazonaws.com/role", set: key(&c.RoleKey),
			Usage: "The pod annotation that names the role."},
		{Name: "iam-external-id", Group: groupRoles, Values: "annotation", Default: "iam.amazonaws.com/external-id", set: key(&c.ExternalIDKey),
			Usage: "The pod annotation that holds the external ID."},
		{Name: "iam-session-name-key", Group: groupRoles, Values: "annotation", Default: "iam.amazonaws.com/session-name", set: key(&c.SessionNameKey),
			Usage: "The pod annotation that gives the pod a session, and a session name, of its own."},
		{Name: "namespace-restrictions", Group: groupRoles, Values: "true|false", bool: true, Default: "true", set: boolean(&c.NamespaceRestrictions),
			Usage: "Let a pod have only roles that an annotation on its namespace allows."},
		{Name: "namespace-restriction-format", Group: groupRoles, Values: "glob|regexp", Default: "glob", set: oneOf(&c.NamespaceRestrictionFormat, "glob", "regexp"),
			Usage: "How to read the patterns of the annotation --namespace-key. A pattern always has to match the whole role ARN."},
		{Name: "namespace-key", Group: groupRoles, Values: "annotation", Default: "iam.amazonaws.com/allowed-roles", set: key(&c.AllowedRolesKey),
			Usage: "The namespace annotation that lists the allowed roles, as a JSON array."},
		{Name: "namespace-permitted-key", Group: groupRoles, Values: "annotation", Default: "iam.amazonaws.com/permitted", set: key(&c.PermittedKey),
			Usage: "The namespace annotation that holds one regular expression for the ARNs of allowed roles, as Kiam's does."},
		{Name: "namespace-default-role-key", Group: groupRoles, Values: "annotation", Default: "iam.amazonaws.com/default-role", set: key(&c.DefaultRoleKey),
			Usage: "The namespace annotation that names the role of its pods that name none."},

		{Name: "iam-role-session-ttl", Group: groupSessions, Values: "duration", Default: "1h", set: duration(&c.SessionTTL, minSession, maxSession),
			Usage: "How long a session lasts. A role assumed with the credentials of another role, as from an instance profile, lasts 1h at most."},
		{Name: "session-name-template", Group: groupSessions, Values: "template", Default: "pod2role-{{.Node}}", set: text(&c.SessionNameTemplate),
			Usage: "The role session name, over {{.Namespace}}, {{.ServiceAccount}}, {{.Pod}}, {{.Node}} and {{.Cluster}}. Pods whose names differ do not share a session, so naming the pod costs one AssumeRole call for each."},
		{Name: "session-tags", Group: groupSessions, Values: "true|false", bool: true, Default: "false", set: boolean(&c.SessionTags),
			Usage: "Tag sessions with cluster, namespace, service account and pod. The roles' trust policies must allow sts:TagSession."},
		{Name: "assume-role-arn", Group: groupSessions, Values: "ARN", set: text(&c.AssumeRoleARN),
			Usage: "A role to assume first, with whose credentials the pods' roles are then assumed."},
		{Name: "region", Group: groupSessions, Values: "region", set: text(&c.Region),
			Usage: "The AWS region whose STS is asked. Without it: AWS_REGION, else the node's."},
		{Name: "revocation-grace", Group: groupSessions, Values: "duration", Default: "5m", set: duration(&c.RevocationGrace, 0, maxSession),
			Usage: "How long a session is still served after STS has refused to renew it."},
		{Name: "sts-rate", Group: groupSessions, Values: "calls per second", Default: "10", set: number(&c.STSRate, 0.1, 1000),
			Usage: "How many calls the node makes to STS in a second, on average."},
		{Name: "sts-burst", Group: groupSessions, Values: "calls", Default: "20", set: integer(&c.STSBurst, 1, 1000),
			Usage: "How many calls to STS the node may make at once."},

		{Name: "metadata-addr", Group: groupMetadata, Values: "host[:port]", Default: "169.254.169.254", set: hostPort(&c.MetadataAddr),
			Usage: "The real metadata service, which answers what is passed through."},
		{Name: "metadata", Group: groupMetadata, Values: "imds|emulate", Default: "imds", set: oneOf(&c.Metadata, "imds", "emulate"),
			Usage: "Where what is not a credential comes from: the real service, or, on nodes that are not on EC2, a small built-in set of documents."},
		{Name: "emulate-zone", Group: groupMetadata, Values: "zone", set: text(&c.EmulateZone),
			Usage: "With --metadata=emulate, the availability zone to show, such as eu-west-1a; the region follows from it."},
		{Name: "emulate-instance-id", Group: groupMetadata, Values: "id", set: text(&c.EmulateInstanceID),
			Usage: "With --metadata=emulate, the instance ID to show."},
		{Name: "emulate-account-id", Group: groupMetadata, Values: "12 digits", set: text(&c.EmulateAccountID),
			Usage: "With --metadata=emulate, the account ID to show."},
		{Name: "imds-tokens", Group: groupMetadata, Values: "optional|required", Default: "optional", set: oneOf(&c.IMDSTokens, "optional", "required"),
			Usage: "Whether pods must use IMDSv2. Tokens are the daemon's own, whatever the node's metadata service demands."},
		{Name: "token-hop-limit", Group: groupMetadata, Values: "0-64", Default: "0", set: integer(&c.TokenHopLimit, 0, 64),
			Usage: "The IP time-to-live of answers that carry a token, as EC2's hop limit; 0 leaves the system's."},
		{Name: "passthrough", Group: groupMetadata, Values: "standard|strict|none", Default: "standard", set: oneOf(&c.PassThrough, "standard", "strict", "none"),
			Usage: "What pods may read of the rest: standard is every path that carries no secret, strict a documented list, none nothing."},
		{Name: "passthrough-allow", Group: groupMetadata, Values: "regexp", list: " ", set: list(&c.PassThroughAllow),
			Usage: "A regular expression for further paths that pods may read. It has to match the whole path and opens nothing that carries a secret. May be given more than once; in the variable, spaces separate them."},
		{Name: "passthrough-user-data", Group: groupMetadata, Values: "true|false", bool: true, Default: "false", set: boolean(&c.PassThroughUserData),
			Usage: "Let pods read the instance's user data. It often holds secrets."},

		{Name: "app-port", Group: groupListening, rules: true, Values: "port", Default: "8181", set: port(&c.AppPort),
			Usage: "Where the daemon answers the pods. kube2iam and Kiam use 8181 as well."},
		{Name: "metrics-port", Group: groupListening, Values: "port", Default: "8182", set: port(&c.MetricsPort),
			Usage: "Where the daemon serves health, readiness and metrics."},
		{Name: "debug-addr", Group: groupListening, Values: "address:port", Default: "127.0.0.1:8183", set: loopback(&c.DebugAddr),
			Usage: "Where the daemon serves the debug views; an address of the loopback interface. Empty switches them off."},
		{Name: "probe-socket", Group: groupListening, Values: "file", set: text(&c.ProbeSocket),
			Usage: "A unix socket where the daemon serves health and readiness for \"pod2role probe\", in a folder of the pod's own. During a hand-over the metrics port answers for the other pod."},
		{Name: "handover-dir", Group: groupListening, Values: "directory", set: text(&c.HandoverDir),
			Usage: "A folder of root's own on the node, in which a newly started daemon finds the one that is to be replaced, and gets its open sockets once it is ready. Empty: the old one has to end first."},
		{Name: "direct", Group: groupListening, Values: "refuse|allow", Default: "refuse", set: oneOf(&c.Direct, "refuse", "allow"),
			Usage: "What to do with requests that reach the port without having been redirected."},

		{Name: "hold", Group: groupLimits, Values: "duration", Default: "5s", set: duration(&c.Hold, 0, maxHold),
			Usage: "How long to hold the request of a pod that is not known yet, before it is told to come again."},
		{Name: "hold-max", Group: groupLimits, Values: "requests", Default: "2000", set: integer(&c.HoldMax, 1, 1_000_000),
			Usage: "How many requests may be held at once."},
		{Name: "hold-max-per-source", Group: groupLimits, Values: "requests", Default: "64", set: integer(&c.HoldMaxPerSource, 1, 1_000_000),
			Usage: "How many requests from one address may be held at once."},
		{Name: "max-connections", Group: groupLimits, Values: "connections", Default: "4096", set: integer(&c.MaxConnections, 1, 1_000_000),
			Usage: "How many connections from pods may be open at once."},
		{Name: "max-connections-per-source", Group: groupLimits, Values: "connections", Default: "256", set: integer(&c.MaxPerSource, 1, 1_000_000),
			Usage: "How many connections from one address may be open at once."},
		{Name: "drain", Group: groupLimits, Values: "duration", Default: "10s", set: duration(&c.Drain, 0, maxDrain),
			Usage: "How long to finish what is being answered when the daemon is told to stop."},

		{Name: "redirect", Group: groupRedirect, Values: "on|off|external", Default: "on", set: oneOf(&c.Redirect, "on", "off", "external"),
			Usage: "Redirect the pods' metadata traffic here and lock every other way to it. off: decide and show, but leave the traffic alone; external: something else redirects it."},
		{Name: "iptables", Group: groupRedirect, Values: "true|false", bool: true, set: redirectSwitch(&c.iptables),
			Usage: "kube2iam's and Kiam's name for --redirect: true is on, false is off."},
		{Name: "host-interface", Group: groupRedirect, rules: true, Values: "interface", Default: "auto", set: text(&c.HostInterface),
			Usage: "Where the pods' traffic arrives: auto is everything that arrives from a pod; a name, a prefix such as eni+, or !name for all but one."},
		{Name: "host-ip", Group: groupRedirect, rules: true, Values: "address", list: ",", set: addresses(&c.HostIP),
			Usage: "The node's address to redirect to, one for IPv4 and one for IPv6. Without it, the source address of the node's default route."},
		{Name: "redirect-resync", Group: groupRedirect, Values: "duration", Default: "1m", set: duration(&c.RedirectResync, minResync, maxResync),
			Usage: "How often to compare the rules with what they should be, besides each time the kernel says that they changed."},

		{Name: "log-format", Group: groupLogging, rules: true, Values: "text|json", Default: "text", set: oneOf(&c.LogFormat, "text", "json"),
			Usage: "How log lines are written."},
		{Name: "log-level", Group: groupLogging, rules: true, Values: "level", Default: "info", set: oneOf(&c.LogLevel, "debug", "info", "warn", "error"),
			Usage: "debug, info, warn or error."},
	}
}
