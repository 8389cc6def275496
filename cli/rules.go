package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"pod2role/config"
	"pod2role/iptables"
)

// rulesCommand handles the redirect and the lock without a daemon.
func rulesCommand(s streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rules print|check|install|remove [--option=value …]",
		Short: "Show, check, put in or take out the redirect and the lock on this node",
		Long: `Show, check, put in or take out the rules in this node's kernel that send the pods' metadata traffic to the daemon, and
lock every other way to it. The daemon does all this itself; the commands are for what it cannot do.`,
		Args: usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	for _, verb := range []struct {
		name, short, long string
		run               func(context.Context, streams, config.Config) error
	}{
		{"print", "Print the rules as they should be", "Print the rules as they should be, in the syntax of their own tool. Nothing is changed.", printRules},
		{
			"check", "Compare the kernel's rules with what they should be",
			`Compare the kernel's rules with what they should be, and list other programs' rules for the metadata address. The exit
status is 0 if the rules are complete and nobody else's is consulted before them, and 1 otherwise.`, checkRules,
		},
		{
			"install", "Put the rules in",
			`Put the rules in before there is a daemon: from a unit that runs at boot, once the network is up, or from an init step.
Until the daemon listens, pods find a closed door instead of the node's role. Rules that are right already stay as they
are.`, installRules,
		},
		{
			"remove", "Take the rules out",
			`Take the rules out, such as after an uninstallation. From then on the pods of this node reach the real metadata service, and
get the node's own role from it. A daemon that is running puts the rules back.`, removeRules,
		},
	} {
		cmd.AddCommand(&cobra.Command{
			Use: verb.name + " [--option=value …]", Short: verb.short, Long: verb.long + "\n" + config.RulesHelp(),
			DisableFlagParsing: true, // as for run, whose options these are
			RunE: func(cmd *cobra.Command, args []string) error {
				c, err := config.ParseRules(args, os.Environ())
				if errors.Is(err, pflag.ErrHelp) {
					return cmd.Help()
				} else if err != nil {
					return usageError{fmt.Errorf("the configuration is wrong:\n%w", err)}
				}
				return verb.run(cmd.Context(), s, c)
			},
		})
	}
	return cmd
}

// newRules works out the rules as the daemon would.
func newRules(ctx context.Context, s streams, c config.Config) (*iptables.Redirect, error) {
	addrs, err := hostAddrs(ctx, c.HostIP)
	if err != nil {
		return nil, err
	}
	log, err := newLog(s.err, c)
	if err != nil {
		return nil, err
	}
	rules := redirectConfig(c, addrs)
	rules.Log = log
	return iptables.New(rules)
}

func printRules(ctx context.Context, s streams, c config.Config) error {
	rules, err := newRules(ctx, s, c)
	if err != nil {
		return err
	}
	_, err = io.WriteString(s.out, rules.String())
	return err
}

func checkRules(ctx context.Context, s streams, c config.Config) error {
	rules, err := newRules(ctx, s, c)
	if err != nil {
		return err
	}
	status, err := rules.Check(ctx)
	if err != nil {
		return err
	}
	return s.report(status)
}

// report prints what was found, a line for each, and ends the command with exitFailure if the rules do not hold.
func (s streams) report(status iptables.Status) error {
	line := func(what, text string) { fmt.Fprintf(s.out, "%s: %s\n", what, text) }
	for _, problem := range status.Problems {
		line("problem", problem)
	}
	for _, rule := range status.Foreign {
		if rule.Ahead {
			line("another program's rule, consulted before ours", rule.String())
		} else {
			line("another program's rule", rule.String())
		}
	}
	for _, warning := range status.Warnings {
		line("warning", warning)
	}
	if !status.Complete || !status.First {
		fmt.Fprintln(s.out, "the rules do not hold")
		return silentError{}
	}
	fmt.Fprintf(s.out, "the rules are complete and first (%s): %d connections redirected, %d packets locked out\n", status.Backend, status.Redirected, status.Locked)
	return nil
}

func installRules(ctx context.Context, s streams, c config.Config) error {
	rules, err := newRules(ctx, s, c)
	if err != nil {
		return err
	}
	return rules.Apply(ctx)
}

func removeRules(ctx context.Context, s streams, c config.Config) error {
	if len(c.HostIP) == 0 {
		// What is ours is known by its name, wherever it points to, and goes also where there is no default route.
		c.HostIP = []netip.Addr{netip.AddrFrom4([4]byte{192, 0, 2, 1})} // RFC 5737
	}
	rules, err := newRules(ctx, s, c)
	if err != nil {
		return err
	}
	return rules.Remove(ctx)
}
