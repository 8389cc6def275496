package cli

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
)

// The exit statuses.
const (
	exitFailure = 1 // something that should have worked did not, or a check found a fault
	exitUsage   = 2 // the command line or the configuration is wrong
)

// streams is where a command reads and writes.
type streams struct {
	in       io.Reader
	out, err io.Writer
}

// usageError is a mistake in the command line or the configuration.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// silentError ends a command with exitFailure when it has already said why.
type silentError struct{}

func (silentError) Error() string { return "" }

// Main runs one command line and returns its exit status. It ends early when ctx does.
func Main(ctx context.Context, args []string, in io.Reader, out, errors io.Writer) int {
	s := streams{in: in, out: out, err: errors}
	root := root(s)
	root.SetArgs(args)
	return s.status(root.ExecuteContext(ctx))
}

// status reports err and turns it into an exit status.
func (s streams) status(err error) int {
	if err == nil {
		return 0
	}
	if errors.As(err, new(silentError)) {
		return exitFailure
	}
	fmt.Fprintf(s.err, "pod2role: %v\n", err)
	if errors.As(err, new(usageError)) {
		fmt.Fprintln(s.err, "pod2role: see `pod2role --help`")
		return exitUsage
	}
	return exitFailure
}

func root(s streams) *cobra.Command {
	root := &cobra.Command{
		Use:   "pod2role",
		Short: "Gives every pod on a Kubernetes node the credentials of its own IAM role",
		Long: `pod2role answers, on a Kubernetes node on AWS, what pods ask EC2's metadata service: each pod gets the
credentials of the IAM role that its annotation names and its namespace allows, and never the node's.`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          usageArgs(cobra.NoArgs),
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetIn(s.in)
	root.SetOut(s.out)
	root.SetErr(s.err)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	root.CompletionOptions.HiddenDefaultCmd = true
	root.AddCommand(runCommand(s), rulesCommand(s), demoCommand(s), probeCommand(s), versionCommand(s), docsCommand(s))
	return root
}

// usageArgs makes a mistake in the arguments a usageError.
func usageArgs(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return usageError{err}
		}
		return nil
	}
}
