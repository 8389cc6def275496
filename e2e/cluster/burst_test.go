//go:build cluster

package cluster_test

import (
	"fmt"
	"testing"

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
	first := n.burst(t, "burst")
	t.Logf("%v; %d calls of AssumeRole for %d roles; load %s", summarize(first), n.assumed(), burstRoles, load())
	for _, a := range first {
		if a.Error != "" {
			t.Errorf("the pod %s had no credentials after the first attempt: %s (%+v)", a.Pod, a.Error, a)
		}
	}
	if calls := n.assumed(); calls != burstRoles {
		t.Errorf("%d calls of AssumeRole for %d roles", calls, burstRoles)
	}
}

// Without the runtime's records the API server's word is all there is, and it comes a second or more after a pod's first
// request. How many first attempts fail is therefore counted and not judged; that each pod gets its role in the end, and
// never another, is.
func TestFortyPodsAtOnceWithoutRecordsGetNoOtherRole(t *testing.T) {
	n := newNode(t)
	n.install(t, "cni-results-dir: []")
	first := n.burst(t, "burst-no-records", "-attempts=30", "-every=1s")
	t.Logf("%v; %d calls of AssumeRole for %d roles; load %s", summarize(first), n.assumed(), burstRoles, load())
}

// burst starts 40 pods with 8 roles at once in a new namespace, waits for their end, checks whatever they got, and returns
// the first attempt of each.
func (n *node) burst(t *testing.T, namespace string, args ...string) []cluster.Attempt {
	t.Helper()
	n.namespace(t, namespace)
	role := func(i int) string { return fmt.Sprintf("shop-%d", i%burstRoles) }
	var pods []*corev1.Pod
	for i := range burstPods {
		pods = append(pods, pod(namespace, fmt.Sprintf("pod-%02d", i), role(i), args...))
	}
	n.create(t, pods...)
	n.reach(t, namespace, burstPods, corev1.PodSucceeded, corev1.PodFailed)

	var first []cluster.Attempt
	var later durations // from the first attempt's begin to credentials
	for i, p := range pods {
		all := n.attempts(t, p)
		for _, a := range all {
			n.check(t, a, role(i))
		}
		first = append(first, all[0])
		switch last := all[len(all)-1]; {
		case last.Error == "":
			later = append(later, last.Start.Add(last.Total).Sub(all[0].Start))
		case len(all) > 1:
			t.Errorf("the pod %s never got credentials: %s", p.Name, last.Error)
		}
	}
	if len(args) > 0 {
		t.Logf("asking anew until there are credentials takes %v", later)
	}
	return first
}
