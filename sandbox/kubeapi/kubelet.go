package kubeapi

import (
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The life of a pod, as scheduler and kubelet report it: StartPod, SandboxReady,
// RunPod, then FinishPod (its containers ended) or TerminatePod (somebody deleted
// it), and RemovePod. Each is one write, so one event for a watch.

// StartPod creates (or replaces) pod, bound to node: Pending, without an address.
func (s *Server) StartPod(node string, pod *corev1.Pod) error {
	pod.Spec.NodeName = node
	pod.Status.Phase = corev1.PodPending
	s.setCondition(pod, corev1.PodScheduled, true)
	if err := s.Apply(pod); err != nil {
		return fmt.Errorf("starting pod %s/%s on %s: %w", pod.Namespace, pod.Name, node, err)
	}
	return nil
}

// SandboxReady reports that the pod's network is set up: its addresses, its start
// time (once) and condition PodReadyToStartContainers. The addresses reach the
// API only now, when the CNI has long given them.
func (s *Server) SandboxReady(namespace, name string, addrs ...netip.Addr) error {
	return Update(s, namespace, name, func(pod *corev1.Pod) { s.setSandbox(pod, addrs) })
}

func (s *Server) setSandbox(pod *corev1.Pod, addrs []netip.Addr) {
	if pod.Status.StartTime == nil {
		pod.Status.StartTime = &metav1.Time{Time: s.cfg.Now()}
	}
	if len(addrs) > 0 {
		pod.Status.PodIPs = nil
	}
	for _, addr := range addrs {
		pod.Status.PodIPs = append(pod.Status.PodIPs, corev1.PodIP{IP: addr.String()})
	}
	s.setCondition(pod, corev1.PodReadyToStartContainers, true)
	s.setCondition(pod, corev1.PodInitialized, true)
}

// RunPod reports the pod's containers running and ready, and SandboxReady with
// it; without addresses the pod keeps those it has.
func (s *Server) RunPod(namespace, name string, addrs ...netip.Addr) error {
	return Update(s, namespace, name, func(pod *corev1.Pod) {
		s.setSandbox(pod, addrs)
		pod.Status.Phase = corev1.PodRunning
		s.setCondition(pod, corev1.ContainersReady, true)
		s.setCondition(pod, corev1.PodReady, true)
	})
}

// FinishPod reports that all containers ended, in phase Succeeded or Failed. As
// from a kubelet, the status keeps the addresses that the CNI took back.
func (s *Server) FinishPod(namespace, name string, phase corev1.PodPhase) error {
	return Update(s, namespace, name, func(pod *corev1.Pod) {
		pod.Status.Phase = phase
		for _, condition := range []corev1.PodConditionType{corev1.PodReadyToStartContainers, corev1.ContainersReady, corev1.PodReady} {
			s.setCondition(pod, condition, false)
		}
	})
}

// TerminatePod asks the pod to end, with 30 s of grace: it runs on, with a
// deletionTimestamp.
func (s *Server) TerminatePod(namespace, name string) error {
	return Update(s, namespace, name, func(pod *corev1.Pod) {
		grace := int64(30)
		pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = &metav1.Time{Time: s.cfg.Now()}, &grace
	})
}

// RemovePod deletes the pod object.
func (s *Server) RemovePod(namespace, name string) error {
	return s.Delete(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}})
}

// setCondition sets a condition, and its time if it turns.
func (s *Server) setCondition(pod *corev1.Pod, kind corev1.PodConditionType, holds bool) {
	status := corev1.ConditionFalse
	if holds {
		status = corev1.ConditionTrue
	}
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == kind {
			if c.Status != status {
				c.Status, c.LastTransitionTime = status, metav1.Time{Time: s.cfg.Now()}
			}
			return
		}
	}
	pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{
		Type: kind, Status: status, LastTransitionTime: metav1.Time{Time: s.cfg.Now()},
	})
}
