package imds

import (
	"cmp"
	"net/netip"
	"strings"
	"time"
)

// Tokens is the instance's HttpTokens option.
type Tokens int

const (
	// TokensOptional serves IMDSv1 and IMDSv2; a token that is presented must be valid.
	TokensOptional Tokens = iota
	// TokensRequired serves IMDSv2 only: 401 without a valid token.
	TokensRequired
	// TokensDisabled serves IMDSv1 only: the token path answers 403 and tokens are not looked at. EC2 has no such
	// option; some emulators and proxies behave like this.
	TokensDisabled
)

// Paths says how a request target is understood.
type Paths int

const (
	// Strict understands exactly the canonical paths, with or without one trailing slash.
	Strict Paths = iota
	// Lenient understands a target in the worst of all readings that some HTTP server makes of it: repeated slashes
	// folded, percent-escapes decoded up to three times, case ignored, dot segments resolved or dropped, backslashes
	// as slashes, cut at `;`, at NUL and at an escaped `?` or `#`, any version segment or none. If one reading names
	// a secret, that is what it serves.
	Lenient
)

// Config describes the instance. The zero value is a complete instance in eu-west-1, which is not the SDKs' fallback
// region.
type Config struct {
	Account   string // default 111122223333
	Region    string // default eu-west-1
	Zone      string // availability zone, default Region + "a"
	ZoneID    string // availability zone ID, default derived: euw1-az1
	Partition string // default from Region: aws, aws-cn or aws-us-gov

	InstanceID   string     // default i-0a1b2c3d4e5f60718
	InstanceType string     // default m7i.large
	ImageID      string     // default ami-0123456789abcdef0
	PrivateIP    netip.Addr // IPv4, default 10.0.1.17
	MAC          string     // default 02:5a:0c:0f:1e:2d
	Role         string     // name of the node's role and of its instance profile, default sandbox-node-role

	// UserData is the instance's user data. It gets a line with [UserDataMarker]. Empty: none was given, 404.
	UserData string
	// InstanceTags are served under tags/instance; nil: not enabled, 404. // :: tag key -> value
	InstanceTags map[string]string
	// Extended also serves iam/security-credentials-extended, which EC2 does on some instances only.
	Extended bool
	// CredentialLifetime is the life of the node role's credentials, renewed at half of it. Default 6 h, as on EC2.
	CredentialLifetime time.Duration

	Tokens Tokens
	Paths  Paths
	// KeepAlive keeps connections open between requests. EC2 does not: it answers with `Connection: close`.
	KeepAlive bool
	// MaxHits is how many of the latest hits are kept, and how many of the latest secret ones. Default 10000.
	MaxHits int
}

func (c Config) withDefaults() Config {
	c.Account = cmp.Or(c.Account, "111122223333")
	c.Region = cmp.Or(c.Region, "eu-west-1")
	c.Zone = cmp.Or(c.Zone, c.Region+"a")
	c.ZoneID = cmp.Or(c.ZoneID, zoneID(c.Region))
	c.Partition = cmp.Or(c.Partition, partition(c.Region))
	c.InstanceID = cmp.Or(c.InstanceID, "i-0a1b2c3d4e5f60718")
	c.InstanceType = cmp.Or(c.InstanceType, "m7i.large")
	c.ImageID = cmp.Or(c.ImageID, "ami-0123456789abcdef0")
	if !c.PrivateIP.IsValid() {
		c.PrivateIP = netip.AddrFrom4([4]byte{10, 0, 1, 17})
	}
	c.MAC = cmp.Or(c.MAC, "02:5a:0c:0f:1e:2d")
	c.Role = cmp.Or(c.Role, "sandbox-node-role")
	c.CredentialLifetime = cmp.Or(c.CredentialLifetime, 6*time.Hour)
	c.MaxHits = cmp.Or(c.MaxHits, 10_000)
	return c
}

// zoneID abbreviates a region as AWS does in zone IDs: eu-west-1 is euw1, ap-southeast-2 is apse2.
func zoneID(region string) string {
	abbreviate := strings.NewReplacer("northeast", "ne", "northwest", "nw", "southeast", "se", "southwest", "sw",
		"north", "n", "south", "s", "east", "e", "west", "w", "central", "c", "gov", "g", "-", "")
	return abbreviate.Replace(region) + "-az1"
}

func partition(region string) string {
	switch {
	case strings.HasPrefix(region, "cn-"):
		return "aws-cn"
	case strings.HasPrefix(region, "us-gov-"):
		return "aws-us-gov"
	default:
		return "aws"
	}
}

// domain is the suffix of the partition's service endpoints, as services/domain says it.
func (c Config) domain() string {
	if c.Partition == "aws-cn" {
		return "amazonaws.com.cn"
	}
	return "amazonaws.com"
}

func (c Config) hostname() string {
	name := "ip-" + strings.ReplaceAll(c.PrivateIP.String(), ".", "-")
	if c.Region == "us-east-1" {
		return name + ".ec2.internal"
	}
	return name + "." + c.Region + ".compute.internal"
}

// RoleARN returns the ARN of the node's role.
func (s *Server) RoleARN() string {
	return "arn:" + s.cfg.Partition + ":iam::" + s.cfg.Account + ":role/" + s.cfg.Role
}

// CallerARN returns who STS says that the holder of the node role's credentials is.
func (s *Server) CallerARN() string {
	return "arn:" + s.cfg.Partition + ":sts::" + s.cfg.Account + ":assumed-role/" + s.cfg.Role + "/" + s.cfg.InstanceID
}

func (c Config) profileARN() string {
	return "arn:" + c.Partition + ":iam::" + c.Account + ":instance-profile/" + c.Role
}
