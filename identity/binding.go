package identity

import (
	"net/netip"

	"pod2role/mappings"
)

// source is what bound an address to a pod; the values serve as metric labels.
type source string

const (
	byRecord source = "record"
	byView   source = "view"
	byRead   source = "read"
)

// binding is one answer, and all that it rests on: while that stays the same, so does the answer. It never answers by
// itself; the sources are looked at for every request.
type binding struct {
	by       source
	record   Record
	attested Attestation
	base     *mappings.Decision // what Decide said
	answer   *mappings.Decision // base, with the steps that led to the pod before its own
}

// maxBindings bounds what is remembered of addresses that are gone.
const maxBindings = 4096

// bind decides what pod may have, and puts before the decision's trail how the address led to the pod. why is what the
// kernel said.
func (r *Resolver) bind(addr netip.Addr, pod *mappings.Pod, b binding, why string) sighting {
	b.base = r.config.Decide(pod, r.config.View.Namespace(pod.Namespace))

	r.bindMu.RLock()
	last := r.bindings[addr]
	r.bindMu.RUnlock()
	b.answer = last.answer
	if b == last {
		r.metrics.bound(b.by)
		return sighting{decision: last.answer}
	}

	answer := *b.base
	answer.Trail = append(b.steps(addr, pod, why), b.base.Trail...)
	b.answer = &answer
	if settled(b.answer) {
		r.metrics.bound(b.by)
		r.bindMu.Lock()
		if len(r.bindings) >= maxBindings {
			clear(r.bindings)
		}
		r.bindings[addr] = b
		r.bindMu.Unlock()
	}
	return sighting{decision: b.answer}
}

// steps is the way from the address to the pod.
func (b binding) steps(addr netip.Addr, pod *mappings.Pod, why string) []mappings.Step {
	looked := podsAt(addr)
	switch b.by {
	case byRecord:
		looked = recordOf(addr)
	case byRead:
		looked += ", asked directly"
	case byView:
	}
	return []mappings.Step{
		{Looked: looked, Found: "pod " + pod.Namespace + "/" + pod.Name + " (" + pod.UID + ")"},
		{Looked: "the kernel", Found: why},
	}
}
