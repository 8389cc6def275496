//go:build cluster

package cluster_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"

	"pod2role/e2e/cluster"
)

// namespace makes a namespace that allows its pods the roles shop-*, until the test ends.
func (n *node) namespace(t *testing.T, name string) {
	t.Helper()
	t.Cleanup(func() { n.run(t, "kubectl", "delete", "namespace", name, "--ignore-not-found", "--timeout=2m") })
	n.run(t, "kubectl", "create", "namespace", name)
	n.run(t, "kubectl", "annotate", "namespace", name, `iam.amazonaws.com/allowed-roles=["shop-*"]`)
	n.run(t, "kubectl", "-n", name, "wait", "--for=create", "serviceaccount/default", "--timeout=1m")
}

// pod is a pod that runs the client.
func pod(namespace, name, role string, args ...string) *corev1.Pod {
	none, now := false, int64(0)
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Annotations: map[string]string{"iam.amazonaws.com/role": role}},
		Spec: corev1.PodSpec{
			RestartPolicy:                 corev1.RestartPolicyNever,
			AutomountServiceAccountToken:  &none,
			EnableServiceLinks:            &none,
			TerminationGracePeriodSeconds: &now,
			Containers:                    []corev1.Container{{Name: "client", Image: "testbed.local/client:cluster", Args: args}},
		},
	}
}

// create creates pods, all of them at once.
func (n *node) create(t *testing.T, pods ...*corev1.Pod) {
	t.Helper()
	var group errgroup.Group
	for _, p := range pods {
		group.Go(func() error {
			_, err := n.api.CoreV1().Pods(p.Namespace).Create(t.Context(), p, metav1.CreateOptions{})
			return err
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
}

// reach waits until each of the namespace's pods, so many, has one of the phases, and returns them.
func (n *node) reach(t *testing.T, namespace string, count int, phases ...corev1.PodPhase) map[string]*corev1.Pod {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	there := map[string]*corev1.Pod{} // :: name -> pod
	pods := cache.NewListWatchFromClient(n.api.CoreV1().RESTClient(), "pods", namespace, fields.Everything())
	_, err := watchtools.UntilWithSync(ctx, pods, &corev1.Pod{}, nil, func(e watch.Event) (bool, error) {
		p, ok := e.Object.(*corev1.Pod)
		if !ok {
			return false, fmt.Errorf("not a pod: %v", e.Object)
		}
		for _, phase := range phases {
			if p.Status.Phase == phase {
				there[p.Name] = p
			}
		}
		return len(there) == count, nil
	})
	if err != nil {
		t.Fatalf("waiting until the %d pods of %s are %v: %v; so far %d are", count, namespace, phases, err, len(there))
	}
	return there
}

// attempts returns what the client in a pod has printed up to now.
func (n *node) attempts(t *testing.T, p *corev1.Pod) []cluster.Attempt {
	t.Helper()
	var all []cluster.Attempt
	if err := n.log(t.Context(), p, false, func(a cluster.Attempt) { all = append(all, a) }); err != nil {
		t.Fatal(err)
	}
	if len(all) == 0 {
		t.Fatalf("the client in the pod %s made no attempt", p.Name)
	}
	return all
}

// log reads what the client in a pod prints: up to now, or, followed, until ctx ends.
func (n *node) log(ctx context.Context, p *corev1.Pod, follow bool, each func(cluster.Attempt)) error {
	stream, err := n.api.CoreV1().Pods(p.Namespace).GetLogs(p.Name, &corev1.PodLogOptions{Follow: follow}).Stream(ctx)
	if err != nil {
		return fmt.Errorf("reading the log of the pod %s: %w", p.Name, err)
	}
	defer stream.Close()
	lines := bufio.NewScanner(stream)
	for lines.Scan() {
		var a cluster.Attempt
		if err := json.Unmarshal(lines.Bytes(), &a); err != nil {
			return fmt.Errorf("reading the line %q of the pod %s: %w", lines.Text(), p.Name, err)
		}
		each(a)
	}
	if ctx.Err() != nil {
		return nil
	}
	return lines.Err()
}
