package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	clusterPods       = 10_000
	clusterNamespaces = 200
	nodePods          = 110 // the kubelet's default limit
	nodeRoles         = 20
)

// memory is what the daemon needs on a full node of a big cluster.
func memory(ctx context.Context, b *bench) ([]table, error) {
	taken := table{
		columns: []string{"moment", "resident", "of that its own", "of that pages of the binary", "Go heap in use"},
		note: fmt.Sprintf("%d pods on this node with %d roles, %d in the cluster, %d namespaces. Pages of the binary are those that the kernel has "+
			"mapped, whether they are needed or not; it drops them when memory is short. What the daemon touched is what it needs to go on.", nodePods, nodeRoles, clusterPods, clusterNamespaces),
	}
	received := table{columns: []string{"from the API server", "objects in the cluster", "received", "bytes"}}
	err := b.inWorld(ctx, func(ctx context.Context, w *world) error {
		pods, err := w.fill()
		if err != nil {
			return err
		}
		if err := w.start(ctx); err != nil {
			return err
		}
		moment := func(name string) error {
			r, err := w.daemon.resident()
			if err != nil {
				return err
			}
			heap, err := w.metric(ctx, "go_memstats_heap_inuse_bytes")
			taken.add(name, mebibytes(r.total), mebibytes(r.anonymous), mebibytes(r.file), mebibytes(heap))
			return err
		}
		if err := moment("ready"); err != nil {
			return err
		}
		if err := askAll(ctx, pods); err != nil {
			return err
		}
		if err := moment("every pod has its credentials"); err != nil {
			return err
		}
		if err := w.settle(ctx); err != nil {
			return err
		}
		if err := moment(fmt.Sprintf("%.0f s after a collection", settling.Seconds())); err != nil {
			return err
		}
		if err := w.daemon.forget(); err != nil {
			return err
		}
		if err := askAll(ctx, pods); err != nil {
			return err
		}
		touched, err := w.daemon.touched()
		if err != nil {
			return err
		}
		taken.add("touched while each pod asks once more", mebibytes(touched), "", "", "")
		for _, kind := range []struct {
			resource string
			all      int
		}{{"pods", clusterPods}, {"namespaces", clusterNamespaces}} {
			var sent int64
			for _, r := range w.api.Requests() {
				if r.Resource == kind.resource && (r.Verb == "list" || r.Verb == "watch") {
					sent += r.Sent
				}
			}
			got := strconv.Itoa(kind.all)
			if kind.resource == "pods" {
				got = strconv.Itoa(nodePods)
			}
			received.add(kind.resource, strconv.Itoa(kind.all), got, fmt.Sprintf("%.0f KiB", float64(sent)/1024))
		}
		return nil
	})
	return []table{taken, received}, err
}

// settling is how long the daemon is left alone before its memory is measured at rest.
const settling = 5 * time.Second

// settle makes the daemon collect its garbage, and waits. What Go gives back to the system by itself within some minutes,
// it gives back soon after collections.
func (w *world) settle(ctx context.Context) error {
	for range 2 {
		if _, err := get(ctx, "http://"+w.debug+"/debug/pprof/heap?gc=1"); err != nil {
			return err
		}
	}
	wait(ctx, settling)
	return nil
}

// askAll lets each pod get its credentials.
func askAll(ctx context.Context, pods []*pod) error {
	for _, p := range pods {
		if f := botocore().fetch(ctx, p); f.err != nil {
			return fmt.Errorf("pod %s has no credentials: %w", p.name, f.err)
		}
	}
	return nil
}

// fill fills the cluster and returns the pods of this node.
func (w *world) fill() ([]*pod, error) {
	for i := range clusterNamespaces {
		if err := w.namespace(fmt.Sprintf("team-%d", i)); err != nil {
			return nil, err
		}
	}
	var ours []*pod
	for i := range clusterPods {
		p := w.pod(fmt.Sprintf("team-%d", i%clusterNamespaces), fmt.Sprintf("role-%d", i%nodeRoles))
		object := p.realistic()
		object.Spec.NodeName = fmt.Sprintf("node-%d", 2+i%99)
		if i < nodePods {
			object.Spec.NodeName = node
			ours = append(ours, p)
			if err := p.give(); err != nil {
				return nil, err
			}
		}
		if err := w.api.Apply(object); err != nil {
			return nil, err
		}
	}
	return ours, nil
}

// realistic is the pod as it stands in a cluster: some six kilobytes, of which the daemon needs a few hundred bytes.
func (p *pod) realistic() *corev1.Pod {
	object := p.object()
	object.Labels = map[string]string{
		"app.kubernetes.io/name": "service", "app.kubernetes.io/instance": p.name, "app.kubernetes.io/managed-by": "Helm", "pod-template-hash": "7d9f8b6c5d",
	}
	object.Annotations["kubectl.kubernetes.io/restartedAt"] = "2026-11-20T08:00:00Z"
	object.Annotations["prometheus.io/scrape"] = "true"
	object.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "service-7d9f8b6c5d", UID: p.uid}}
	var fields strings.Builder // what the API server keeps of who set which field
	fields.WriteString(`{"f:metadata":{"f:labels":{`)
	for i := range 60 {
		fmt.Fprintf(&fields, `"f:app.kubernetes.io/field-%d":{},`, i)
	}
	fields.WriteString(`".":{}}}}`)
	object.ManagedFields = []metav1.ManagedFieldsEntry{{
		Manager: "kube-controller-manager", Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1", FieldsType: "FieldsV1",
		FieldsV1: metav1.NewFieldsV1(fields.String()),
	}}
	for c := range 2 {
		container := corev1.Container{
			Name: fmt.Sprintf("container-%d", c), Image: "registry.example/team/service@sha256:" + strings.Repeat("0f", 32),
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("128Mi")}},
		}
		for e := range 25 {
			container.Env = append(container.Env, corev1.EnvVar{Name: fmt.Sprintf("SERVICE_SETTING_%d", e), Value: "the value of a setting of the service"})
		}
		container.VolumeMounts = []corev1.VolumeMount{{Name: "token", MountPath: "/var/run/secrets/kubernetes.io/serviceaccount", ReadOnly: true}}
		object.Spec.Containers = append(object.Spec.Containers, container)
	}
	object.Spec.ServiceAccountName = "service"
	object.Status.Phase = corev1.PodRunning
	object.Status.PodIPs = []corev1.PodIP{{IP: p.addr.String()}}
	object.Status.PodIP = p.addr.String()
	object.Status.StartTime = &metav1.Time{Time: time.Now().Add(-time.Hour)}
	for _, kind := range []corev1.PodConditionType{corev1.PodReadyToStartContainers, corev1.PodInitialized, corev1.PodReady, corev1.ContainersReady, corev1.PodScheduled} {
		object.Status.Conditions = append(object.Status.Conditions, corev1.PodCondition{Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: *object.Status.StartTime})
	}
	return object
}

// metric reads a number from the daemon's own metrics.
func (w *world) metric(ctx context.Context, name string) (float64, error) {
	page, err := get(ctx, "http://"+w.metrics+"/metrics")
	if err != nil {
		return 0, err
	}
	for lines := bufio.NewScanner(bytes.NewReader(page)); lines.Scan(); {
		if value, ok := strings.CutPrefix(lines.Text(), name+" "); ok {
			return strconv.ParseFloat(value, 64)
		}
	}
	return 0, fmt.Errorf("the daemon has no metric %s", name)
}
