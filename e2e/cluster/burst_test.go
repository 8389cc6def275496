//go:build cluster

package cluster_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"pod2role/e2e/cluster"
)

const (
	burstPods  = 40
	burstRoles = 8
)

func TestFortyPodsAtOnceGetTheirRolesAtTheFirstAttempt(t *testing.T) {
	n := newNode(t)
	n.install(t, "")
	got := n.burst(t, "burst")
	if failed := failures(got); len(failed) > 0 {
		t.Errorf("%d of %d pods had no credentials after the first attempt:\n%s", len(failed), burstPods, strings.Join(failed, "\n"))
	}
	if calls := n.assumed(); calls != burstRoles {
		t.Errorf("%d calls of AssumeRole for %d roles", calls, burstRoles)
	}
}

// Without the runtime's records, the API server's word is what there is, and it comes a second or more after a pod's
// first request. How many pods fail is measured and not judged; that none gets the wrong role is.
func TestFortyPodsAtOnceWithoutRecordsGetNoOtherRole(t *testing.T) {
	n := newNode(t)
	n.install(t, "cni-results-dir: []")
	n.burst(t, "burst-no-records")
}

// burst starts 40 pods with 8 roles at once in a new namespace, waits for all of them, checks and logs what they got.
func (n *node) burst(t *testing.T, namespace string) []cluster.Attempt {
	t.Helper()
	n.namespace(t, namespace)
	var pods []*corev1.Pod
	roles := map[string]string{} // :: pod -> role
	for i := range burstPods {
		name, role := fmt.Sprintf("pod-%02d", i), fmt.Sprintf("shop-%d", i%burstRoles)
		pods = append(pods, pod(namespace, name, role))
		roles[name] = role
	}
	before := n.assumed()
	n.create(t, pods...)
	n.reach(t, namespace, burstPods, corev1.PodSucceeded, corev1.PodFailed)

	var got []cluster.Attempt
	for _, p := range pods {
		if err := n.attempts(t.Context(), p, false, func(a cluster.Attempt) { got = append(got, a) }); err != nil {
			t.Fatal(err)
		}
	}
	if len(got) != burstPods {
		t.Fatalf("%d pods made %d attempts", burstPods, len(got))
	}
	for _, a := range got {
		n.check(t, a, roles[a.Pod])
	}
	t.Logf("%s; %d calls of AssumeRole for %d roles; load %s", summary(got), n.assumed()-before, burstRoles, load())
	return got
}

// failures returns why attempts brought no credentials.
func failures(attempts []cluster.Attempt) []string {
	var failed []string
	for _, a := range attempts {
		if a.Error != "" {
			failed = append(failed, fmt.Sprintf("%s: %s (token %v, list %v, role %v; %s)", a.Pod, a.Error, a.Token, a.List, a.Role, a.Tokenless))
		}
	}
	return failed
}

// summary says how many attempts failed, and how long the others took from the start of the process to credentials.
func summary(attempts []cluster.Attempt) string {
	var took []time.Duration
	first, last := attempts[0].Start, attempts[0].Start
	tokenless := 0
	for _, a := range attempts {
		if a.Start.Before(first) {
			first = a.Start
		}
		if a.Start.After(last) {
			last = a.Start
		}
		if a.Tokenless != "" {
			tokenless++
		}
		if a.Error == "" {
			took = append(took, a.Total)
		}
	}
	slices.Sort(took)
	quantile := func(q float64) time.Duration {
		if len(took) == 0 {
			return 0
		}
		return took[int(q*float64(len(took)-1))].Round(100 * time.Microsecond)
	}
	return fmt.Sprintf("%d attempts, begun within %v: %d failed, %d without a token; time to credentials p50 %v, p90 %v, max %v",
		len(attempts), last.Sub(first).Round(100*time.Millisecond), len(attempts)-len(took), tokenless, quantile(0.5), quantile(0.9), quantile(1))
}

// load is the machine's load average of one minute: figures from a busy machine are no figures.
func load() string {
	content, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	return strings.Fields(string(content))[0]
}
