package cli

import (
	"cmp"
	"sync"

	"pod2role/credentials"
	"pod2role/mappings"
)

// referrals refer each pod that may have a session to it, so that it is fetched before the pod has an address, and kept
// until the pod is gone. What is not allowed is never asked for.
type referrals struct {
	decider  *mappings.Decider
	sessions *credentials.Cache
	view     podView

	// mu makes one step of looking at the view and acting upon it. News of pods, of namespaces and of the base ARN come
	// from goroutines of their own: one that has read of a pod before its end must not refer it to a session after that,
	// for nobody would let go of it again.
	mu sync.Mutex
}

// podView is what referrals need of the cluster. They are told of each change after the view has changed.
type podView interface {
	Pods() []*mappings.Pod
	Namespace(name string) *mappings.Namespace
}

// podChanged takes in that a pod appeared, changed, or is gone, which is a nil pod.
func (r *referrals) podChanged(old, pod *mappings.Pod) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if pod == nil {
		r.sessions.Release(old.UID)
		r.decider.Forget(old.UID)
		return
	}
	r.refer(pod)
}

// namespaceChanged judges the namespace's pods anew.
func (r *referrals) namespaceChanged(old, ns *mappings.Namespace) {
	name := cmp.Or(ns, old).Name
	r.judge(func(pod *mappings.Pod) bool { return pod.Namespace == name })
}

// judge judges the pods anew that match.
func (r *referrals) judge(match func(*mappings.Pod) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, pod := range r.view.Pods() {
		if match(pod) {
			r.refer(pod)
		}
	}
}

// refer refers a pod of the view, as the view shows it now; mu is held.
func (r *referrals) refer(pod *mappings.Pod) {
	decision := r.decider.Decide(pod, r.view.Namespace(pod.Namespace))
	if decision.Verdict != mappings.Allowed || pod.HostNetwork || pod.Finished {
		r.sessions.Release(pod.UID)
		return
	}
	r.sessions.Refer(pod.UID, credentials.Key(decision.Session))
}
