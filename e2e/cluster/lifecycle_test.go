//go:build cluster

package cluster_test

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"pod2role/e2e/cluster"
)

func TestADeniedPodIsRefusedAndTheNodeIsToldWhy(t *testing.T) {
	n := newNode(t)
	n.install(t, "")
	n.namespace(t, "denied")
	n.create(t, pod("denied", "intruder", "admin", "-attempts=0"))
	intruder := n.reach(t, "denied", 1, corev1.PodRunning)["intruder"]
	first := n.next(t, intruder, time.Time{})
	if first.Error == "" || !strings.Contains(first.Error, "403") {
		t.Errorf("the pod was told %q, want a 403", first.Error)
	}
	n.check(t, first, "admin")
	if n.assumed() != 0 {
		t.Error("STS was asked for a role that the pod may not have")
	}

	var view struct {
		Pod, Verdict, Reason string
		Trail                []struct{ Looked, Found string }
	}
	n.view(t, "explain?ip="+url.QueryEscape(intruder.Status.PodIP), &view)
	t.Logf("the debug endpoint: %+v", view)
	if view.Pod != "denied/intruder" || view.Verdict != "forbidden" || len(view.Trail) == 0 || !strings.Contains(view.Reason, "admin") {
		t.Errorf("the debug endpoint explains %+v", view)
	}
}

// No handover from one daemon to the next exists yet, so that the pods' failures are counted and not judged.
func TestARestartOfTheDaemonGivesNobodyTheNodesRole(t *testing.T) {
	n := newNode(t)
	n.install(t, "")
	n.namespace(t, "restart")
	const askers = 4
	var pods []*corev1.Pod
	for i := range askers {
		pods = append(pods, pod("restart", fmt.Sprintf("asker-%d", i), fmt.Sprintf("shop-%d", i), "-attempts=0", "-every=100ms"))
	}
	n.create(t, pods...)
	n.reach(t, "restart", askers, corev1.PodRunning)
	for _, p := range pods {
		n.next(t, p, time.Now())
	}

	begin := time.Now()
	n.run(t, "kubectl", "-n", "kube-system", "rollout", "restart", "daemonset/pod2role")
	n.rolledOut(t)
	end := time.Now()
	var all []cluster.Attempt
	var without time.Duration
	for i, p := range pods {
		n.next(t, p, end)
		one := n.attempts(t, p)
		for _, a := range one {
			n.check(t, a, fmt.Sprintf("shop-%d", i))
		}
		all, without = append(all, one...), max(without, gap(one))
	}
	t.Logf("around a restart of %v: %v; a pod was without credentials for %v at most; load %s",
		end.Sub(begin).Round(100*time.Millisecond), summarize(all), without, load())
}

func TestUninstallingLeavesTheRulesAndNobodyTheNodesRole(t *testing.T) {
	n := newNode(t)
	n.install(t, "")
	n.uninstall(t)
	left := n.Run(t, "nft", "list", "table", "inet", "pod2role")
	t.Logf("after helm uninstall:\n%s", left)

	n.namespace(t, "orphans")
	n.create(t, pod("orphans", "before", "shop-0"))
	n.reach(t, "orphans", 1, corev1.PodFailed)
	a := n.attempts(t, pod("orphans", "before", ""))[0]
	t.Logf("a pod is told: %s", a.Error)
	n.check(t, a, "shop-0")

	// As the chart's notes say. They also say that the pods then have the node's role again; if they had not, the tests
	// would watch for what cannot happen.
	n.Run(t, "nft", "delete", "table", "inet", "pod2role")
	if rules := n.Run(t, "nft", "list", "ruleset"); strings.Contains(rules, "pod2role") {
		t.Errorf("the chart's notes do not say how to remove all of this:\n%s", rules)
	}
	n.create(t, pod("orphans", "after", "shop-0"))
	n.reach(t, "orphans", 1, corev1.PodSucceeded)
	a = n.attempts(t, pod("orphans", "after", ""))[0]
	if n.imds.Leaks(a.Document) == nil || n.trespasses() == nil {
		t.Errorf("without rules a pod got %+v, want the node's role", a)
	}
	n.imds.Reset()
}

// next waits for the first attempt of a pod that began at or after a time, and, but for the zero time, brought credentials.
func (n *node) next(t *testing.T, p *corev1.Pod, since time.Time) cluster.Attempt {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var found *cluster.Attempt
	err := n.log(ctx, p, true, func(a cluster.Attempt) {
		if found == nil && (since.IsZero() || !a.Start.Before(since) && a.Error == "") {
			found = &a
			cancel()
		}
	})
	if found == nil {
		t.Fatalf("the pod %s made no such attempt: %v", p.Name, err)
	}
	return *found
}
