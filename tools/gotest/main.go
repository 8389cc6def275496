// Command gotest runs go test, prints what go test prints, and names every test that was skipped.
//
//	gotest [-allow-skips] [-summary FILE] -- [ARGUMENTS OF go test]
//
// go test alone says nothing of a skipped test, so a suite that needs root or a client program can be green and empty.
// gotest ends with the list of what was skipped and why; without -allow-skips a skip is a failure.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
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
	flags := flag.NewFlagSet("gotest", flag.ContinueOnError)
	flags.SetOutput(errs)
	allowSkips := flags.Bool("allow-skips", false, "name skipped tests, but do not fail because of them")
	summary := flags.String("summary", "", "write the closing summary into this file as well")
	if err := flags.Parse(args); err != nil {
		return 2
	}

	cmd := exec.CommandContext(ctx, "go", append([]string{"test", "-json"}, flags.Args()...)...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // go test passes it on to the tests
	cmd.WaitDelay = 30 * time.Second
	cmd.Stderr = errs
	events, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		fmt.Fprintf(errs, "gotest: starting go test: %v\n", err)
		return 1
	}
	start := time.Now()
	r, readErr := read(events, out)
	err = errors.Join(readErr, cmd.Wait())

	text := r.summary(time.Since(start), err, *allowSkips)
	fmt.Fprint(out, text)
	if *summary != "" {
		if err := os.WriteFile(*summary, []byte(text), 0o644); err != nil {
			fmt.Fprintf(errs, "gotest: writing the summary: %v\n", err)
			return 1
		}
	}
	if r.failed(err, *allowSkips) {
		return 1
	}
	return 0
}
