package config

import (
	"net/netip"
	"regexp"
	"time"
)

// Config is the daemon's configuration after validation. Options in the table say what each field means to a user;
// the comments here add only what a reader of the code needs.
type Config struct {
	// The cluster.
	Kubeconfig    string // empty: the pod's own service account
	Node          string
	ClusterName   string
	CNIResultsDir []string

	DaemonSetNamespace, DaemonSet string // empty: not told

	// Roles.
	BaseRoleARN                string // normalised by mappings, with a trailing slash; empty: discover or none
	AutoDiscoverBaseARN        bool
	DefaultRole                string
	RoleKey                    string
	ExternalIDKey              string
	SessionNameKey             string
	NamespaceRestrictions      bool
	NamespaceRestrictionFormat string // "glob" or "regexp"
	AllowedRolesKey            string
	PermittedKey               string
	DefaultRoleKey             string

	// Sessions.
	SessionTTL          time.Duration
	SessionNameTemplate string
	SessionTags         bool
	AssumeRoleARN       string
	Region              string
	RevocationGrace     time.Duration
	STSRate             float64
	STSBurst            int

	// The metadata service.
	MetadataAddr        string // host or host:port, as given
	Metadata            string // "imds" or "emulate"
	EmulateZone         string
	EmulateInstanceID   string
	EmulateAccountID    string
	IMDSTokens          string // "optional" or "required"
	TokenHopLimit       int
	PassThrough         string // "standard", "strict" or "none"
	PassThroughAllow    []string
	PassThroughUserData bool

	// Listening.
	AppPort     uint16
	MetricsPort uint16
	DebugAddr   netip.AddrPort
	ProbeSocket string // a path; empty: none
	HandoverDir string // a path; empty: no hand-over
	Direct      string // "refuse" or "allow"

	// Holding and limits.
	Hold             time.Duration
	HoldMax          int
	HoldMaxPerSource int
	MaxConnections   int
	MaxPerSource     int
	Drain            time.Duration

	// The redirect.
	Redirect       string // "on", "off" or "external"
	HostInterface  string
	HostIP         []netip.Addr // empty: the node's own, looked up at start
	RedirectResync time.Duration

	// Logging.
	LogFormat string // "text" or "json"
	LogLevel  string // a logrus level

	iptables string // what --iptables says of Redirect: "", "on" or "off"
}

// MetadataAddrPort splits MetadataAddr into host and port; the port is 80 unless given.
func (c Config) MetadataAddrPort() (host, port string) { return splitHostPort(c.MetadataAddr) }

// The session lengths of AssumeRole, https://docs.aws.amazon.com/STS/latest/APIReference/API_AssumeRole.html: role
// chaining caps them at an hour.
const (
	minSession = 15 * time.Minute
	maxSession = 12 * time.Hour
	maxChained = time.Hour
)

// A Kubernetes qualified name, https://kubernetes.io/docs/concepts/overview/working-with-objects/annotations/.
var annotationKey = regexp.MustCompile(`^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$`)
