//go:build cluster

package cluster_test

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"pod2role/e2e/cluster"
)

// durations prints as quantiles.
type durations []time.Duration

// String implements fmt.Stringer.
func (d durations) String() string {
	if len(d) == 0 {
		return "(none)"
	}
	sorted := slices.Sorted(slices.Values(d))
	quantile := func(q float64) time.Duration {
		return sorted[int(q*float64(len(sorted)-1))].Round(100 * time.Microsecond)
	}
	return fmt.Sprintf("p50 %v, p90 %v, max %v", quantile(0.5), quantile(0.9), quantile(1))
}

// summary is what came of attempts.
type summary struct {
	attempts, tokenless int
	within              time.Duration // from the begin of the first to the begin of the last
	took                durations     // those that brought credentials, from their begin
	failures            map[string]int
}

func summarize(attempts []cluster.Attempt) summary {
	s := summary{attempts: len(attempts), failures: map[string]int{}}
	first := slices.MinFunc(attempts, byStart)
	s.within = slices.MaxFunc(attempts, byStart).Start.Sub(first.Start)
	for _, a := range attempts {
		if a.Tokenless != "" {
			s.tokenless++
		}
		if a.Error == "" {
			s.took = append(s.took, a.Total)
		} else {
			s.failures[a.Error]++
		}
	}
	return s
}

func byStart(a, b cluster.Attempt) int { return a.Start.Compare(b.Start) }

// String implements fmt.Stringer.
func (s summary) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d attempts, begun within %v: %d failed, %d had no token; time to credentials %v",
		s.attempts, s.within.Round(100*time.Millisecond), s.attempts-len(s.took), s.tokenless, s.took)
	for _, failure := range slices.Sorted(maps.Keys(s.failures)) {
		fmt.Fprintf(&b, "\n%d times %s", s.failures[failure], failure)
	}
	return b.String()
}

// gap is the longest time that a pod was without credentials, if it asked for new ones all the time.
func gap(attempts []cluster.Attempt) time.Duration {
	var longest time.Duration
	var last time.Time // when the latest credentials came
	for _, a := range attempts {
		if a.Error != "" {
			continue
		}
		came := a.Start.Add(a.Total)
		if !last.IsZero() {
			longest = max(longest, came.Sub(last))
		}
		last = came
	}
	return longest.Round(100 * time.Millisecond)
}

// load is the machine's load average of one minute: figures from a busy machine are worse than they should be.
func load() string {
	content, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	return strings.Fields(string(content))[0]
}
