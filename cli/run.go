package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/sirupsen/logrus"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/time/rate"

	"pod2role/attest"
	"pod2role/cluster"
	"pod2role/cni"
	"pod2role/config"
	"pod2role/credentials"
	"pod2role/debug"
	"pod2role/identity"
	"pod2role/iptables"
	"pod2role/mappings"
	"pod2role/migrate"
	"pod2role/proxy"
)

func runCommand(s streams) *cobra.Command {
	return &cobra.Command{
		Use:   "run --node=NAME [--option=value …]",
		Short: "Run the daemon on this node",
		Long:  "Run the daemon on this node.\n" + config.Help(),
		// The options' own parser reports all mistakes at once; cobra's would stop at the first.
		DisableFlagParsing: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := config.Parse(args, os.Environ(), migrate.FlagAdvice, mistakenRules)
			if errors.Is(err, pflag.ErrHelp) {
				return cmd.Help()
			} else if err != nil {
				return usageError{fmt.Errorf("the configuration is wrong:\n%w", err)}
			}
			log, err := newLog(s.err, c)
			if err != nil {
				return err
			}
			routeKlog(log)
			l, err := open(cmd.Context(), c)
			if err != nil {
				return err
			}
			d, err := assemble(cmd.Context(), c, outside{log: log})
			if err != nil {
				l.close()
				return err
			}
			return d.Run(cmd.Context(), l)
		},
	}
}

// outside is what the daemon gets from outside besides its configuration.
type outside struct {
	log *logrus.Entry
}

// assemble makes the daemon that c describes. It reads the kubeconfig and looks up the node's address, and starts nothing.
func assemble(ctx context.Context, c config.Config, o outside) (*daemon, error) {
	d := &daemon{config: c, log: o.log, registry: prometheus.NewRegistry(), ready: make(chan struct{}), prepared: make(chan struct{})}
	if c.BaseRoleARN == "" && c.AutoDiscoverBaseARN {
		d.baseARN = errors.New("the base ARN is being looked for")
	}
	part := func(name string) *logrus.Entry { return o.log.WithField("part", name) }
	d.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))

	clients, err := cluster.Connect(c.Kubeconfig, version())
	if err != nil {
		return nil, fmt.Errorf("connecting to the API server: %w", err)
	}
	metadata := "http://" + net.JoinHostPort(c.MetadataAddrPort())
	instance := metadata
	if c.Metadata == "emulate" {
		instance = ""
	}
	d.sts, err = credentials.NewSTS(credentials.STSConfig{
		Region: c.Region, AssumeRoleARN: c.AssumeRoleARN, SessionName: "pod2role", MetadataEndpoint: instance, Log: part("credentials"),
	})
	if err != nil {
		return nil, err
	}
	if d.decider, err = mappings.NewDecider(rules(c)); err != nil {
		return nil, err
	}
	if d.sessions, err = credentials.New(credentials.Config{
		Assume: d.sts.Assume, Duration: c.SessionTTL, RevocationGrace: c.RevocationGrace, Limit: rate.Limit(c.STSRate), Burst: c.STSBurst,
		Log: part("credentials"), Registerer: d.registry,
	}); err != nil {
		return nil, err
	}
	if d.attest, err = attest.New(attest.Config{OnChange: d.wake, Log: part("attest"), Registerer: d.registry}); err != nil {
		return nil, err
	}
	if len(c.CNIResultsDir) > 0 {
		if d.records, err = cni.New(cni.Config{Dirs: c.CNIResultsDir, OnChange: d.wake, Log: part("cni"), Registerer: d.registry}); err != nil {
			return nil, err
		}
	}
	if d.cluster, err = cluster.New(cluster.Config{
		Client: clients.Core, Metadata: clients.Metadata, Node: c.Node, AnnotationKeys: rules(c).Keys.All(),
		OnPod: d.podChanged, OnNamespace: d.namespaceChanged, Log: part("cluster"), Registerer: d.registry,
	}); err != nil {
		return nil, err
	}
	d.referrals = &referrals{decider: d.decider, sessions: d.sessions, view: d.cluster}
	if d.identity, err = identity.New(identity.Config{
		Records: d.recordSource(), View: d.cluster, Attest: d.attestClaim, Decide: d.decider.Decide, Ready: d.recordsRead, IsNodeAddr: new(ownAddrs).contains,
		Hold: c.Hold, MaxHeld: c.HoldMax, MaxHeldPerSource: c.HoldMaxPerSource, Log: part("identity"), Registerer: d.registry,
	}); err != nil {
		return nil, err
	}
	if err := d.assembleRedirect(ctx, part("iptables")); err != nil {
		return nil, err
	}
	if c.DaemonSet != "" {
		if d.membership, err = cluster.NewMembership(cluster.MembershipConfig{
			Client: clients.Core, Namespace: c.DaemonSetNamespace, Name: c.DaemonSet, Node: c.Node, OnChange: d.reportMembership, Log: part("cluster"),
		}); err != nil {
			return nil, err
		}
	}
	d.answers = d.proxyConfig(metadata, part("proxy"))
	d.debug, err = debug.New(debug.Config{NotReady: d.notReady, Gatherer: d.registry, Views: d.views(), Log: part("debug")})
	return d, err
}

func (d *daemon) assembleRedirect(ctx context.Context, log *logrus.Entry) error {
	c := d.config
	if c.Redirect != "on" {
		return nil
	}
	addrs, err := hostAddrs(ctx, c.HostIP)
	if err != nil {
		return err
	}
	rules := redirectConfig(c, addrs)
	rules.Resync, rules.Log, rules.Registerer = c.RedirectResync, log, d.registry
	d.redirect, err = iptables.New(rules)
	return err
}

// redirectConfig says what the rules are, to whoever handles them.
func redirectConfig(c config.Config, addrs []netip.Addr) iptables.Config {
	return iptables.Config{NodeAddrs: addrs, Port: c.AppPort, Interface: c.HostInterface}
}

// proxyConfig says how pods are answered, except for the key that signs session tokens.
func (d *daemon) proxyConfig(metadata string, log *logrus.Entry) proxy.Config {
	c := d.config
	p := proxy.Config{
		Decide: d.identity.Resolve, Credentials: d.sessions.Get, MetadataURL: metadata, Ingress: ingress,
		PassThrough: proxy.PassThrough{Mode: proxy.Mode(c.PassThrough), Allow: c.PassThroughAllow, UserData: c.PassThroughUserData},
		TokenMode:   proxy.TokenMode(c.IMDSTokens), TokenHopLimit: c.TokenHopLimit,
		Hold: c.Hold, Drain: c.Drain, MaxConnections: c.MaxConnections, MaxConnectionsPerSource: c.MaxPerSource, Log: log, Registerer: d.registry,
	}
	if c.Metadata == "emulate" {
		p.Emulate = &proxy.Instance{Zone: c.EmulateZone, InstanceID: c.EmulateInstanceID, AccountID: c.EmulateAccountID}
	}
	if c.Direct == "refuse" {
		p.Redirected = d.redirected
	}
	return p
}

// makeProxy makes what answers the pods, once.
func (d *daemon) makeProxy(key []byte) (err error) {
	p := d.answers
	p.TokenKey = key
	d.proxy, err = proxy.New(p)
	return err
}

// rules says how roles are decided.
func rules(c config.Config) mappings.Rules {
	return mappings.Rules{
		Keys: mappings.Keys{
			Role: c.RoleKey, ExternalID: c.ExternalIDKey, SessionName: c.SessionNameKey,
			AllowedRoles: c.AllowedRolesKey, Permitted: c.PermittedKey, DefaultRole: c.DefaultRoleKey,
		},
		BaseARN: c.BaseRoleARN, AwaitBaseARN: c.BaseRoleARN == "" && c.AutoDiscoverBaseARN, DefaultRole: c.DefaultRole,
		NamespaceRestrictions: c.NamespaceRestrictions, Format: mappings.Format(c.NamespaceRestrictionFormat),
		SessionNameTemplate: c.SessionNameTemplate, Node: c.Node, Cluster: c.ClusterName, SessionTags: c.SessionTags,
	}
}

// mistakenRules finds the mistakes in the configuration that only the rules can see.
func mistakenRules(c config.Config) []string {
	_, err := mappings.NewDecider(rules(c))
	if err == nil {
		return nil
	}
	return strings.Split(err.Error(), "\n")
}
