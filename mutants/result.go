package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"regexp"
	"strings"
)

// result is what one run of go test came to.
type result struct {
	tests   map[string]string // :: test, subtests included -> pass, fail or skip
	aborted bool              // go test did not get as far as a test, as when the package does not compile
	output  string
}

func (r *result) add(test, action string) {
	if r.tests == nil {
		r.tests = map[string]string{}
	}
	r.tests[test] = action
}

// count returns how many tests ended with action.
func (r *result) count(action string) int {
	n := 0
	for _, a := range r.tests {
		if a == action {
			n++
		}
	}
	return n
}

// read reads what go test -json has said; see "go doc test2json".
func read(events []byte) result {
	var r result
	var output strings.Builder
	lines := bufio.NewScanner(bytes.NewReader(events))
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var e struct{ Action, Test, Output, FailedBuild string }
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			output.WriteString(lines.Text() + "\n") // go itself speaks
			continue
		}
		output.WriteString(e.Output)
		switch e.Action {
		case "run":
			r.add(e.Test, "fail") // unless it ends otherwise: a panic elsewhere in the process ends it without a word
		case "pass", "fail", "skip":
			r.aborted = r.aborted || e.FailedBuild != ""
			overlooked := e.Action == "skip" && strings.HasPrefix(e.Test, "Fuzz") && strings.Contains(e.Test, "/")
			if e.Test != "" && !overlooked { // an input on which a fuzz test has no opinion
				r.add(e.Test, e.Action)
			}
		}
	}
	r.output = strings.TrimSpace(output.String())
	return r
}

// matches tells whether -run with this expression runs the test: alternatives, each with an expression for every level
// of subtests, as "go help testflag" has it.
func matches(run, test string) bool {
	names := strings.Split(test, "/")
	for _, alternative := range split(run, '|') {
		levels := split(alternative, '/')
		all := len(levels) <= len(names)
		for i := 0; all && i < len(levels); i++ {
			expression, err := regexp.Compile(levels[i])
			all = err == nil && expression.MatchString(names[i])
		}
		if all {
			return true
		}
	}
	return false
}

// split cuts an expression at every separator that is not inside brackets, parentheses or an escape.
func split(expression string, separator byte) []string {
	var parts []string
	start, depth := 0, 0
	for i := 0; i < len(expression); i++ {
		switch c := expression[i]; {
		case c == '\\':
			i++
		case c == '[' || c == '(':
			depth++
		case c == ']' || c == ')':
			depth--
		case c == separator && depth == 0:
			parts = append(parts, expression[start:i])
			start = i + 1
		}
	}
	return append(parts, expression[start:])
}
