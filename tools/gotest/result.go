package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
)

// event is one line of go test -json; see "go doc test2json".
type event struct {
	Action     string
	Package    string
	ImportPath string // of build-output
	Test       string
	Output     string
}

// result is what one run of go test has said.
type result struct {
	packages []string // the closing line of each package, as go test prints it
	passed   int      // tests, subtests included
	failures []string // "package test"
	skipped  []string // "package test: reason"
}

// read prints to out what go test without -json would have printed, and the output of each failed test.
func read(events io.Reader, out io.Writer) (*result, error) {
	r := new(result)
	output := map[string][]string{} // :: package and test -> its output, until it has ended
	lines := bufio.NewScanner(events)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			fmt.Fprintln(out, lines.Text()) // go itself speaks, as when a module is missing
			continue
		}
		key := e.Package + " " + e.Test
		switch e.Action {
		case "build-output":
			fmt.Fprint(out, e.Output)
		case "output":
			if e.Test != "" {
				output[key] = append(output[key], e.Output)
			} else if verdict(e.Output) {
				fmt.Fprint(out, e.Output)
				r.packages = append(r.packages, e.Output)
			} else if e.Output != "PASS\n" && e.Output != "FAIL\n" {
				fmt.Fprint(out, e.Output)
			}
		case "pass", "fail", "skip":
			if e.Test == "" {
				r.flush(output, e, out)
				continue
			}
			text := output[key]
			delete(output, key)
			switch e.Action {
			case "pass":
				r.passed++
			case "fail":
				r.failures = append(r.failures, key)
				fmt.Fprint(out, strings.Join(text, ""))
			case "skip":
				if strings.HasPrefix(e.Test, "Fuzz") && strings.Contains(e.Test, "/") {
					continue // an input on which the fuzz test has no opinion
				}
				r.skipped = append(r.skipped, fmt.Sprintf("%s %s: %s", e.Package, e.Test, reason(text)))
			}
		}
	}
	return r, lines.Err()
}

// flush prints what tests said that never ended, because their process did. They have failed.
func (r *result) flush(output map[string][]string, e event, out io.Writer) {
	for _, key := range slices.Sorted(maps.Keys(output)) {
		if strings.HasPrefix(key, e.Package+" ") {
			if e.Action == "fail" {
				fmt.Fprint(out, strings.Join(output[key], ""))
				r.failures = append(r.failures, key)
			}
			delete(output, key)
		}
	}
}

// verdict tells whether a line is the closing one of a package.
func verdict(line string) bool {
	for _, prefix := range []string{"ok  \t", "FAIL\t", "?   \t"} {
		if strings.HasPrefix(line, prefix) {
			return true
		}
	}
	return false
}

// reason finds what a skipped test said.
func reason(output []string) string {
	var said []string
	for _, line := range output {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "=== ") || strings.HasPrefix(line, "--- ") {
			continue
		}
		if _, after, ok := strings.Cut(line, ".go:"); ok { // "file.go:12: what was said"
			if _, text, ok := strings.Cut(after, ": "); ok {
				line = text
			}
		}
		said = append(said, line)
	}
	if len(said) == 0 {
		return "it does not say why"
	}
	return strings.Join(said, "; ")
}

// failed tells whether the run as a whole has failed, given how go test ended.
func (r *result) failed(err error, allowSkips bool) bool {
	return err != nil || len(r.failures) > 0 || (!allowSkips && len(r.skipped) > 0) || r.passed == 0
}

// summary is the last word: what each package said, what was skipped, and the verdict.
func (r *result) summary(took time.Duration, err error, allowSkips bool) string {
	var b strings.Builder
	b.WriteString("\n")
	slices.Sort(r.packages) // what failed comes first
	for _, line := range r.packages {
		if !strings.Contains(line, "[no test files]") {
			b.WriteString(line)
		}
	}
	for _, failure := range r.failures {
		fmt.Fprintf(&b, "--- FAIL: %s\n", failure)
	}
	for _, skip := range r.skipped {
		fmt.Fprintf(&b, "--- SKIP: %s\n", skip)
	}
	counts := fmt.Sprintf("%d tests passed, %d failed, %d skipped in %.0fs", r.passed, len(r.failures), len(r.skipped), took.Seconds())
	switch {
	case !r.failed(err, allowSkips):
		fmt.Fprintf(&b, "PASS\t%s\n", counts)
	case err == nil && len(r.failures) == 0 && r.passed == 0:
		fmt.Fprintf(&b, "FAIL\t%s: no test ran\n", counts)
	case err == nil && len(r.failures) == 0:
		fmt.Fprintf(&b, "FAIL\t%s: here nothing may be skipped\n", counts)
	default:
		fmt.Fprintf(&b, "FAIL\t%s\n", counts)
	}
	return b.String()
}
