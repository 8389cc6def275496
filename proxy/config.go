package proxy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/sirupsen/logrus"

	"pod2role/credentials"
	"pod2role/mappings"
)

// TokenMode says whether pods must use IMDSv2, as EC2's HttpTokens does.
type TokenMode string

const (
	// TokensOptional serves requests without a token; one that is presented must be valid.
	TokensOptional TokenMode = "optional"
	// TokensRequired serves only requests with a valid token.
	TokensRequired TokenMode = "required"
)

// Config is what a Proxy is made from. Fields that are not marked as required have the defaults that are named.
type Config struct {
	// Decide says who asks from addr, and what it may have; required. It may hold the request until ctx ends. ifindex
	// is the interface on which the connection came in, 0 if that is not known.
	Decide func(ctx context.Context, addr netip.Addr, ifindex int) *mappings.Decision
	// Credentials returns a session for the key; required. It may hold the request until ctx ends.
	Credentials func(ctx context.Context, key credentials.Key) (*credentials.Session, error)

	// MetadataURL is the real metadata service, "http://host[:port]"; required unless Emulate is set.
	MetadataURL string
	// Emulate answers in place of the real service where there is none. nil: the real service answers. Without a zone,
	// documents are 503 until SetInstance.
	Emulate *Instance
	// PassThrough says what of the real service pods may read. The zero value is the standard mode.
	PassThrough PassThrough

	// Redirected reports whether a connection was meant for the metadata service and redirected to here. Others, and
	// those of which it cannot be told, are refused. nil: all are served.
	Redirected func(net.Conn) (bool, error)
	// CatchUp brings what Decide and Moved know of the network up to date. It is called once for each connection, before
	// its first request is decided. nil: nothing is done.
	CatchUp func()
	// Moved reports whether an address changed its interface since a connection from it was accepted, so that whose the
	// connection is cannot be told. Such connections are ended. It is called for every request. nil: none does.
	Moved func(addr netip.Addr, accepted time.Time) bool
	// Ingress returns the index of the interface on which a connection comes in; nil: not known.
	Ingress func(net.Conn) int

	// TokenMode is optional if empty.
	TokenMode TokenMode
	// TokenKey signs the session tokens: 32 random bytes, required. Processes with the same key accept one another's.
	TokenKey []byte
	// TokenHopLimit is the IP time-to-live of answers that carry a token, 1 to 64; 0 leaves the system's.
	TokenHopLimit int

	// Hold is the longest time for which a request waits to be decided and for a session; default 5 s.
	Hold time.Duration
	// UpstreamTimeout bounds a request to the real service with all its attempts; default 4 s.
	UpstreamTimeout time.Duration
	// ReadHeaderTimeout bounds the reading of a request; default 5 s.
	ReadHeaderTimeout time.Duration
	// IdleTimeout is how long a connection may wait for its next request; default 30 s.
	IdleTimeout time.Duration
	// WriteTimeout bounds a request from the end of its header to the end of its answer. It must be longer than Hold
	// and UpstreamTimeout together, or held clients would find the connection closed; default 5 s longer.
	WriteTimeout time.Duration
	// Drain is how long Run waits for requests that are underway when it is told to stop; 0: not at all.
	Drain time.Duration

	// MaxConnections is how many connections may be open at once; default 4096.
	MaxConnections int
	// MaxConnectionsPerSource is how many of them may come from one address; default 256.
	MaxConnectionsPerSource int
	// MaxRequestsPerSource is how many requests of one address are worked on at once; default 128.
	MaxRequestsPerSource int
	// UpstreamRate is how many requests a second one address may cause to the real service, which EC2 throttles for
	// the node as a whole, together with DNS; default 50, with a burst of four seconds' worth.
	UpstreamRate float64

	// Log gets one line for each request that concerns a role, within limits per pod. nil: discarded.
	Log *logrus.Entry
	// Registerer gets the metrics. nil: none.
	Registerer prometheus.Registerer
	// OnRequest is called after each request that concerns a role, before its answer has been sent in full. nil: not.
	OnRequest func(Request)
}

// Request is one request that concerns a role, and what became of it. It carries no secret.
type Request struct {
	Addr     netip.Addr
	Decision *mappings.Decision // nil if it was refused before it was asked who it is
	Route    string             // "list", "role", "extended-list", "extended-role" or "info"
	Role     string             // the role as asked for; empty where the path names none
	Outcome  string             // as in the metric pod2role_proxy_requests_total
	Status   int                // of the answer
	Duration time.Duration
	Err      error // why there are no credentials, nil for none; it may name the node's role
}

// The largest header that is read, far above what any SDK sends; beyond it net/http answers 431.
const maxHeader = 16 << 10

func (c Config) withDefaults() Config {
	c.TokenMode = cmp.Or(c.TokenMode, TokensOptional)
	c.PassThrough.Mode = cmp.Or(c.PassThrough.Mode, Standard)
	c.Hold = cmp.Or(c.Hold, 5*time.Second)
	c.UpstreamTimeout = cmp.Or(c.UpstreamTimeout, 4*time.Second)
	c.ReadHeaderTimeout = cmp.Or(c.ReadHeaderTimeout, 5*time.Second)
	c.IdleTimeout = cmp.Or(c.IdleTimeout, 30*time.Second)
	c.WriteTimeout = cmp.Or(c.WriteTimeout, c.Hold+c.UpstreamTimeout+5*time.Second)
	c.MaxConnections = cmp.Or(c.MaxConnections, 4096)
	c.MaxConnectionsPerSource = cmp.Or(c.MaxConnectionsPerSource, 256)
	c.MaxRequestsPerSource = cmp.Or(c.MaxRequestsPerSource, 128)
	c.UpstreamRate = cmp.Or(c.UpstreamRate, 50)
	return c
}

// check returns everything that is wrong with the configuration.
func (c Config) check() error {
	var problems []error
	problem := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	if c.Decide == nil || c.Credentials == nil {
		problem("the proxy cannot answer without Decide and Credentials")
	}
	if len(c.TokenKey) != tokenKeySize {
		problem("the token key has %d bytes, not %d", len(c.TokenKey), tokenKeySize)
	}
	if c.TokenMode != TokensOptional && c.TokenMode != TokensRequired {
		problem("tokens are either optional or required, not %q", c.TokenMode)
	}
	if c.TokenHopLimit < 0 || c.TokenHopLimit > 64 {
		problem("the token hop limit %d is not between 0 and 64", c.TokenHopLimit)
	}
	if c.Hold < 0 || c.UpstreamTimeout < 0 || c.ReadHeaderTimeout < 0 || c.IdleTimeout < 0 || c.Drain < 0 {
		problem("a time-out is negative")
	}
	if c.WriteTimeout <= c.Hold+c.UpstreamTimeout {
		problem("the write time-out %s is not longer than hold and upstream time-out together, %s: held requests would be cut off",
			c.WriteTimeout, c.Hold+c.UpstreamTimeout)
	}
	if c.MaxConnections < 0 || c.MaxConnectionsPerSource < 0 || c.MaxRequestsPerSource < 0 || c.UpstreamRate < 0 {
		problem("a limit is negative")
	}
	if c.Emulate == nil {
		u, err := url.Parse(c.MetadataURL)
		if err != nil {
			problem("the metadata service cannot be reached: %w", err)
		} else if u.Scheme != "http" || u.Host == "" || (u.Path != "" && u.Path != "/") || u.RawQuery != "" || u.User != nil {
			problem("the metadata service's address %q is not of the form http://host:port", c.MetadataURL)
		}
	}
	return errors.Join(problems...)
}
