package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

func run(ctx context.Context, args []string, out, errs io.Writer) int {
	flags := flag.NewFlagSet("mutants", flag.ContinueOnError)
	flags.SetOutput(errs)
	only := flags.String("only", "", "judge only patches whose name contains this")
	parallel := flags.Int("parallel", 1, "how many patches to judge at once, each in its own copy of the tree")
	root := flags.String("root", ".", "the module's root")
	race := flags.Bool("race", true, "run the tests with the race detector")
	summary := flags.String("summary", "", "write the last line into this file as well")
	allowSkips := flags.Bool("allow-skips", false, "name patches whose tests cannot run on this machine, but do not fail because of them")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	patches, err := readPatches(filepath.Join(*root, "mutants"), *only)
	if err == nil && len(patches) == 0 {
		err = fmt.Errorf("no patch in %q has %q in its name", filepath.Join(*root, "mutants"), *only)
	}
	if err != nil {
		fmt.Fprintf(errs, "mutants: %v\n", err)
		return 1
	}
	scratch, err := os.MkdirTemp("", "mutants-")
	if err != nil {
		fmt.Fprintf(errs, "mutants: %v\n", err)
		return 1
	}
	defer func() { _ = os.RemoveAll(scratch) }()

	start := time.Now()
	counts := judgeAll(ctx, patches, *parallel, func(worker int) *tree {
		return &tree{from: *root, dir: filepath.Join(scratch, fmt.Sprint(worker), "tree"), race: *race}
	}, out)
	if ctx.Err() != nil {
		fmt.Fprintln(errs, "mutants: interrupted")
		return 1
	}
	bad := counts[survived] + counts[broken]
	if !*allowSkips {
		bad += counts[unjudged]
	}
	verdict := "PASS"
	if bad > 0 {
		verdict = "FAIL"
	}
	last := fmt.Sprintf("%s\t%d mutants: %d killed, %d survived, %d broken, %d not judged in %.0fs\n", verdict,
		len(patches), counts[killed], counts[survived], counts[broken], counts[unjudged], time.Since(start).Seconds())
	fmt.Fprint(out, last)
	if *summary != "" {
		if err := os.WriteFile(*summary, []byte(last), 0o644); err != nil {
			fmt.Fprintf(errs, "mutants: writing the summary: %v\n", err)
			return 1
		}
	}
	if bad > 0 {
		return 1
	}
	return 0
}

// judgeAll prints a line for each patch as it is judged, and counts the outcomes.
func judgeAll(ctx context.Context, patches []patch, parallel int, newTree func(worker int) *tree, out io.Writer) map[outcome]int {
	var (
		mu     sync.Mutex
		wg     sync.WaitGroup
		counts = map[outcome]int{}
		base   = newBaseline(patches)
		next   = make(chan patch)
	)
	for worker := range max(1, parallel) {
		t := newTree(worker)
		wg.Go(func() {
			for p := range next {
				start := time.Now()
				o, why := judge(ctx, t, base, p)
				mu.Lock()
				counts[o]++
				fmt.Fprintf(out, "%-10s %s (%.1fs)\n", o, p.name, time.Since(start).Seconds())
				if o != killed {
					fmt.Fprintf(out, "           breaks: %s\n           %s\n", p.breaks, strings.ReplaceAll(why, "\n", "\n           "))
				}
				mu.Unlock()
			}
		})
	}
	for _, p := range patches {
		select {
		case next <- p:
		case <-ctx.Done():
		}
	}
	close(next)
	wg.Wait()
	return counts
}
