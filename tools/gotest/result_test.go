package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"
)

const stream = `
{"Action":"start","Package":"a"}
{"Action":"run","Package":"a","Test":"TestGood"}
{"Action":"output","Package":"a","Test":"TestGood","Output":"=== RUN   TestGood\n"}
{"Action":"pass","Package":"a","Test":"TestGood","Elapsed":0.1}
{"Action":"output","Package":"a","Test":"TestRoot","Output":"=== RUN   TestRoot\n"}
{"Action":"output","Package":"a","Test":"TestRoot","Output":"    root_test.go:7: needs root: run it with sudo\n"}
{"Action":"output","Package":"a","Test":"TestRoot","Output":"--- SKIP: TestRoot (0.00s)\n"}
{"Action":"skip","Package":"a","Test":"TestRoot","Elapsed":0}
{"Action":"output","Package":"a","Output":"PASS\n"}
{"Action":"output","Package":"a","Output":"ok  \ta\t0.100s\n"}
{"Action":"pass","Package":"a","Elapsed":0.1}
`

const failing = `
{"Action":"output","Package":"b","Test":"TestBad","Output":"    bad_test.go:3: got 1, want 2\n"}
{"Action":"output","Package":"b","Test":"TestBad","Output":"--- FAIL: TestBad (0.00s)\n"}
{"Action":"fail","Package":"b","Test":"TestBad"}
{"Action":"output","Package":"b","Output":"FAIL\n"}
{"Action":"output","Package":"b","Output":"FAIL\tb\t0.200s\n"}
{"Action":"fail","Package":"b"}
`

func TestWhatARunAmountsTo(t *testing.T) {
	goTestFailed := errors.New("exit status 1")
	for _, tt := range []struct {
		name       string
		stream     string
		err        error
		allowSkips bool
		failed     bool
		want       []string // lines of the summary
	}{
		{name: "a skip is named", stream: stream, allowSkips: true, want: []string{
			"ok  \ta\t0.100s", "--- SKIP: a TestRoot: needs root: run it with sudo", "PASS\t1 tests passed, 0 failed, 1 skipped in 3s",
		}},
		{name: "a skip fails where none is allowed", stream: stream, failed: true, want: []string{
			"--- SKIP: a TestRoot: needs root: run it with sudo", "FAIL\t1 tests passed, 0 failed, 1 skipped in 3s: here nothing may be skipped",
		}},
		{
			name: "an input that a fuzz test passes over is no skip", stream: stream + `{"Action":"skip","Package":"a","Test":"FuzzPath/seed#1"}`, allowSkips: true,
			want: []string{"PASS\t1 tests passed, 0 failed, 1 skipped in 3s"},
		},
		{name: "a failed test fails", stream: stream + failing, err: goTestFailed, allowSkips: true, failed: true, want: []string{
			"FAIL\tb\t0.200s", "--- FAIL: b TestBad", "FAIL\t1 tests passed, 1 failed, 1 skipped in 3s",
		}},
		{
			name: "a build failure fails", stream: `{"Action":"output","Package":"c","Output":"FAIL\tc [build failed]\n"}`, err: goTestFailed, allowSkips: true, failed: true,
			want: []string{"FAIL\tc [build failed]"},
		},
		{
			name: "an empty run fails", stream: "", allowSkips: true, failed: true,
			want: []string{"FAIL\t0 tests passed, 0 failed, 0 skipped in 3s: no test ran"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, err := read(strings.NewReader(strings.TrimSpace(tt.stream)), new(bytes.Buffer))
			if err != nil {
				t.Fatal(err)
			}
			if got := r.failed(tt.err, tt.allowSkips); got != tt.failed {
				t.Errorf("failed = %v, want %v", got, tt.failed)
			}
			got := r.summary(3*time.Second, tt.err, tt.allowSkips)
			for _, line := range tt.want {
				if !strings.Contains(got, line+"\n") {
					t.Errorf("the summary lacks %q:\n%s", line, got)
				}
			}
		})
	}
}

func TestTheOutputOfAFailedTestIsPrintedAndThatOfAGoodOneIsNot(t *testing.T) {
	var out bytes.Buffer
	if _, err := read(strings.NewReader(strings.TrimSpace(stream+failing)), &out); err != nil {
		t.Fatal(err)
	}
	got := out.String()
	if !strings.Contains(got, "bad_test.go:3: got 1, want 2\n--- FAIL: TestBad (0.00s)\n") {
		t.Errorf("the failed test's output is missing:\n%s", got)
	}
	if strings.Contains(got, "TestGood") {
		t.Errorf("a good test's output was printed:\n%s", got)
	}
}
