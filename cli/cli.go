// Package cli is the command line.
package cli

import (
	"context"
	"fmt"
	"io"
)

// Main runs one command line and returns its exit code.
func Main(_ context.Context, _ []string, _ io.Reader, _, stderr io.Writer) int {
	fmt.Fprintln(stderr, "pod2role: not yet assembled")
	return 1
}
