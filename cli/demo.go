package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/spf13/cobra"
)

// demoTimeout bounds the demo's scenes: they take a few seconds.
const demoTimeout = 2 * time.Minute

func demoCommand(s streams) *cobra.Command {
	var once, verbose bool
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Run the daemon against a stand-in for AWS and a cluster, on this machine's loopback interface",
		Long: `Run the real daemon against a stand-in for AWS and for the API server, all on the loopback interface: it needs no root,
no AWS account and no cluster. Pods are loopback addresses. The demo shows which pod gets which role, who is refused
and why, and what is passed through; then it stays up, to be tried with curl.`,
		Args: usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			log := logrus.New()
			log.SetOutput(io.Discard)
			if verbose {
				log.SetOutput(s.err)
			}
			routeKlog(logrus.NewEntry(log))
			if !loopbackPods() {
				return errors.New("the demo needs a second loopback address: on macOS, run `sudo ifconfig lo0 alias 127.0.0.2` … `127.0.0.9` first")
			}
			return runWorld(cmd.Context(), outside{log: logrus.NewEntry(log)}, func(ctx context.Context, w *world) error {
				return present(ctx, w, s.out, once)
			})
		},
	}
	cmd.Flags().BoolVar(&once, "once", false, "end after the presentation, with status 1 if anything was not as it should be")
	cmd.Flags().BoolVar(&verbose, "verbose", false, "show the daemon's log, on standard error")
	return cmd
}

// loopbackPods tells whether this system answers on all of 127.0.0.0/8, as Linux does.
func loopbackPods() bool {
	l, err := net.Listen("tcp", "127.0.0.2:0")
	if err != nil {
		return false
	}
	return l.Close() == nil
}

// present plays the scenes and, unless only that was asked for, stays up.
func present(ctx context.Context, w *world, out io.Writer, once bool) error {
	show := &stage{out: out}
	playing, cancel := context.WithTimeout(ctx, demoTimeout)
	defer cancel()
	fmt.Fprintf(out, "pod2role %s: the real daemon, with AWS and Kubernetes played by stand-ins on 127.0.0.1.\n", version())
	if err := play(playing, w, show); err != nil {
		return fmt.Errorf("playing the demo: %w", err)
	}
	fmt.Fprintf(out, "\n%d of %d as it should be.\n", show.good, show.good+show.bad)
	if once {
		if show.bad > 0 {
			return silentError{}
		}
		return nil
	}
	fmt.Fprintf(out, `
It stays up until Ctrl-C. Try, in another terminal (--interface makes curl the pod with that address):

    curl --interface 127.0.0.2 http://%[1]s/latest/meta-data/iam/security-credentials/shop-web
    curl --interface 127.0.0.5 -i http://%[1]s/latest/meta-data/iam/security-credentials/
    curl http://%[2]s/debug/pods
`, w.app, w.debug)
	<-ctx.Done()
	return nil
}

// stage prints what happens and counts what was as it should be.
type stage struct {
	out       io.Writer
	good, bad int
}

func (s *stage) scene(title string) { fmt.Fprintf(s.out, "\n%s\n", title) }

// line prints one thing that happened: who, what they were told, and whether that is right.
func (s *stage) line(right bool, who, format string, args ...any) {
	mark := "ok  "
	if right {
		s.good++
	} else {
		s.bad++
		mark = "BAD "
	}
	fmt.Fprintf(s.out, "  %s %-26s %s\n", mark, who, fmt.Sprintf(format, args...))
}
