package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// scenario is one thing to measure.
type scenario struct {
	name, about string
	measure     func(context.Context, *bench) ([]table, error)
}

func scenarios() []scenario {
	return []scenario{
		{"warm", "what an answer from memory costs, beside a bare handler", warm},
		{"storm", "200 pods start at once, with 5 roles", storm},
		{"roles", "200 pods start at once, each with a role of its own, under STS's limit", manyRoles},
		{"outage", "the API server is away for 20 s", outage},
		{"memory", "110 pods of this node in a cluster of 10,000", memory},
		{"slow", "2,000 half-open connections beside working pods", slow},
	}
}

// bench is what the scenarios have in common.
type bench struct {
	binary  string        // the daemon's
	scratch string        // a folder that goes when the bench ends
	round   time.Duration // of one round of measuring a cost
	rounds  int
	profile string    // the folder for CPU profiles, empty: none
	log     io.Writer // what is going on
}

func run(ctx context.Context, args []string, in io.Reader, out, errs io.Writer) int {
	if slices.Equal(args, []string{referenceArg}) {
		return report(errs, serveReference(ctx, in, out))
	}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(errs)
	b := &bench{log: errs}
	flags.StringVar(&b.binary, "binary", "", "measure this binary, rather than building the one of this tree")
	flags.DurationVar(&b.round, "round", 100*time.Millisecond, "how long one round of measuring a cost lasts")
	flags.IntVar(&b.rounds, "rounds", 17, "how many rounds there are for the daemon, and as many for the reference")
	flags.StringVar(&b.profile, "profile", "", "write CPU profiles of the daemon into this folder (warm)")
	root := flags.String("root", ".", "the module's root")
	write := flags.Bool("write", false, "put the figures into docs/performance.md")
	flags.Usage = func() {
		fmt.Fprintln(errs, "bench [flags] [scenario …]; without a scenario, all of them:")
		for _, s := range scenarios() {
			fmt.Fprintf(errs, "  %-8s %s\n", s.name, s.about)
		}
		flags.PrintDefaults()
	}
	if err := flags.Parse(args); err != nil {
		return 2
	}
	chosen, err := choose(flags.Args())
	if err != nil {
		fmt.Fprintf(errs, "bench: %v\n", err)
		return 2
	}
	return report(errs, b.all(ctx, chosen, *root, *write, out))
}

func report(errs io.Writer, err error) int {
	if err == nil {
		return 0
	}
	fmt.Fprintf(errs, "bench: %v\n", err)
	return 1
}

// choose returns the scenarios of those names, in the table's order; all for none.
func choose(names []string) ([]scenario, error) {
	all := scenarios()
	for _, name := range names {
		if !slices.ContainsFunc(all, func(s scenario) bool { return s.name == name }) {
			return nil, fmt.Errorf("there is no scenario %q", name)
		}
	}
	if len(names) == 0 {
		return all, nil
	}
	return slices.DeleteFunc(all, func(s scenario) bool { return !slices.Contains(names, s.name) }), nil
}

// all measures the scenarios one after the other; what one of them cannot measure does not keep the others back.
func (b *bench) all(ctx context.Context, chosen []scenario, root string, write bool, out io.Writer) error {
	var err error
	if b.scratch, err = os.MkdirTemp("", "pod2role-bench-"); err != nil {
		return fmt.Errorf("making a folder to work in: %w", err)
	}
	defer func() { _ = os.RemoveAll(b.scratch) }()
	given := b.binary != ""
	if !given {
		fmt.Fprintln(b.log, "building the daemon")
		if b.binary, err = buildDaemon(ctx, root, b.scratch); err != nil {
			return err
		}
	}
	page := filepath.Join(root, "docs", "performance.md")
	on := machine(ctx, given) // before the page is written, which is part of the tree
	var problems []error
	for _, s := range chosen {
		fmt.Fprintf(b.log, "%s: %s\n", s.name, s.about)
		before := load()
		tables, err := s.measure(ctx, b)
		if err != nil {
			problems = append(problems, fmt.Errorf("measuring %s: %w", s.name, err))
			continue
		}
		figures := figuresOf(s, tables, on, before, load())
		fmt.Fprintf(out, "\n%s\n", figures)
		if write {
			problems = append(problems, rewrite(page, s.name, figures))
		}
	}
	return errors.Join(problems...)
}
