package identity

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"pod2role/mappings"
)

// sighting is what one look at the sources gave. If the decision is not settled, ask is what the API server could be
// asked to settle it; zero: nothing.
type sighting struct {
	decision *mappings.Decision
	ask      question
}

// look looks at all sources once, and at what the request has found out while it waited; q is nil for one that has not.
// It does no I/O.
func (r *Resolver) look(addr netip.Addr, ingress int, q *inquiry) sighting {
	switch {
	case !addr.IsValid():
		return unbound(mappings.NotAPod, "the source address", "not an IP address", "the request has no source address that can be read")
	case r.config.IsNodeAddr != nil && r.config.IsNodeAddr(addr):
		return unbound(mappings.NotAPod, "the source address "+addr.String(), "the node's own",
			"%s is the node's own address, which its processes and hostNetwork pods share, so that no pod can be told by it", addr)
	case r.config.Ready != nil && !r.config.Ready():
		return unbound(mappings.Pending, "the CNI's records", "not read yet", "the CNI's records have not been read yet, so it is not known whose address %s is", addr)
	}
	var heard *answer
	if q != nil {
		heard = q.heard
	}
	if r.config.Records == nil {
		return r.lookView(addr, ingress, heard)
	}
	record, ok := r.config.Records.Lookup(addr)
	switch {
	case q != nil && q.recorded != "" && record.UID != q.recorded:
		// The request came from the pod that had the address then. Whoever has it by now did not ask.
		return unbound(mappings.Pending, recordOf(addr), "no longer that of the pod that asked ("+q.recorded+")",
			"%s was taken back from the pod that asked (%s) while its request waited", addr, q.recorded)
	case !ok:
		return r.lookView(addr, ingress, heard)
	}
	if q != nil {
		q.recorded = record.UID
	}
	// A record outweighs the view, which may still show the pod that had the address before.
	return r.lookRecord(addr, ingress, record, heard)
}

func (r *Resolver) lookRecord(addr netip.Addr, ingress int, record Record, heard *answer) sighting {
	ask := question{uid: record.UID, namespace: record.Namespace, name: record.Name}
	pod := r.config.View.Pod(record.UID)
	if pod == nil && heard != nil {
		pod = heard.pod(record.UID)
	}
	switch {
	case pod == nil:
		s := unbound(mappings.Pending, recordOf(addr), "pod "+record.Namespace+"/"+record.Name+" ("+record.UID+"), which the API server has not shown yet",
			"the CNI's record gives %s to pod %s/%s, which the API server has not shown yet", addr, record.Namespace, record.Name)
		s.ask = ask
		return s
	case pod.Finished:
		return unbound(mappings.Pending, recordOf(addr), "pod "+record.Namespace+"/"+record.Name+", which has finished",
			"the CNI's record gives %s to pod %s/%s, which has finished", addr, record.Namespace, record.Name)
	}
	attested, why := r.attest(Claim{Addr: addr, Ingress: ingress, Interface: record.Interface, Recorded: true})
	if attested == Refuted {
		return unbound(mappings.Pending, "the kernel", why, "the CNI's record gives %s to pod %s/%s, but the kernel does not bear it out: %s",
			addr, pod.Namespace, pod.Name, why)
	}
	return r.bind(addr, pod, binding{by: byRecord, record: record, attested: attested}, why)
}

func (r *Resolver) lookView(addr netip.Addr, ingress int, heard *answer) sighting {
	pods := r.config.View.PodsAt(addr)
	synced := r.config.View.Synced()
	c := r.count(addr, ingress, pods)
	by := byView
	if heard != nil && heard.speaksOf(addr, pods) {
		// The view has not moved since the API server was asked, so its own answer is the newer one.
		c, by, synced = r.count(addr, ingress, heard.pods), byRead, true
	}
	switch {
	case c.node != nil:
		return unbound(mappings.NotAPod, podsAt(addr), c.node.Namespace+"/"+c.node.Name+", which uses the node's network",
			"%s is the node's own address, by which pod %s/%s cannot be told from the node", addr, c.node.Namespace, c.node.Name)
	case synced && c.n == 1:
		return r.bind(addr, c.pod, binding{by: by, attested: c.attested}, c.why)
	}

	var s sighting
	switch {
	case c.n > 1:
		all := names(c.live)
		s = unbound(mappings.Ambiguous, podsAt(addr), all, "%d live pods have the address %s: %s; whose request this is cannot be told until one of them is gone", c.n, addr, all)
	case c.refuted != nil:
		s = unbound(mappings.Pending, c.refutedBy, c.why, "%s is pod %s/%s by the API server, but not by %s: %s",
			addr, c.refuted.Namespace, c.refuted.Name, c.refutedBy, c.why)
	case !synced:
		s = unbound(mappings.Pending, podsAt(addr), "not all read yet", "the pods of this node have not been read from the API server yet, so it is not known whose address %s is", addr)
	case r.config.IsForeign != nil && r.config.IsForeign(addr):
		return unbound(mappings.NotAPod, podsAt(addr), "none, and the address is known not to be a pod's", "%s is not the address of a pod of this node", addr)
	default:
		s = unbound(mappings.Pending, podsAt(addr), "none", "no pod of this node is known to have the address %s, neither by a record of the CNI nor by the API server", addr)
	}
	if r.config.Records != nil {
		s.decision.Trail = slices.Insert(s.decision.Trail, 0, mappings.Step{Looked: recordOf(addr), Found: "none"})
	}
	s.ask = question{addr: addr}
	return s
}

// claims is what came of counting the claims to an address.
type claims struct {
	n        int             // how many count
	live     []*mappings.Pod // those that count, if there are several
	pod      *mappings.Pod   // the last that counts
	attested Attestation     // of pod's claim
	why      string          // of pod's or refuted's claim
	node     *mappings.Pod   // one that uses the node's network, and with it the address

	refuted   *mappings.Pod // one whose claim does not count, if none does
	refutedBy string        // what refutes it
}

// count counts the pods whose claim to addr stands. A pod that is being deleted claims as well as another.
func (r *Resolver) count(addr netip.Addr, ingress int, pods []*mappings.Pod) claims {
	var c claims
	for _, pod := range pods {
		if pod.HostNetwork {
			c.node = pod
			continue
		}
		if pod.Finished || !slices.Contains(pod.Addrs, addr) {
			continue
		}
		attested, why := Refuted, r.tooLate(addr, pod)
		by := "the CNI's records"
		if why == "" {
			by = "the kernel"
			attested, why = r.attest(Claim{Addr: addr, Ingress: ingress, Ready: pod.SandboxReady})
		}
		if attested == Refuted {
			if c.n == 0 {
				c.refuted, c.refutedBy, c.why = pod, by, why
			}
			continue
		}
		c.n++
		if c.n > 1 {
			if c.live == nil {
				c.live = append(c.live, c.pod)
			}
			c.live = append(c.live, pod)
		}
		c.pod, c.attested, c.why = pod, attested, why
	}
	return c
}

// tooLate says why what the API server alone says of pod and addr does not count, as far as the records tell; empty: it
// may. An address that the CNI has taken back is its pod's no more, however long the API server still shows it there,
// and is another's only if that one got it afterwards. Where the address never had a record, be it that there are no
// records or that they name no pods, there is nothing to compare with.
func (r *Resolver) tooLate(addr netip.Addr, pod *mappings.Pod) string {
	if r.config.Records == nil {
		return ""
	}
	uid, at := r.config.Records.TakenBack(addr)
	switch {
	case at.IsZero():
		return ""
	case uid == pod.UID:
		return "the address was taken back from the pod at " + at.UTC().Format(time.RFC3339)
	case pod.SandboxReady.Before(at): // known in whole seconds: in case of doubt, no
		return "the address was another pod's until " + at.UTC().Format(time.RFC3339) + ", and nothing says that this one got it afterwards"
	}
	return ""
}

func (r *Resolver) attest(c Claim) (Attestation, string) {
	if r.config.Attest == nil {
		return Unavailable, "attestation is not available"
	}
	return r.config.Attest(c)
}

// unbound is a sighting that binds the address to no pod.
func unbound(v mappings.Verdict, looked, found, reason string, args ...any) sighting {
	return sighting{decision: &mappings.Decision{
		Verdict: v, Reason: fmt.Sprintf(reason, args...), Trail: []mappings.Step{{Looked: looked, Found: found}},
	}}
}

func recordOf(addr netip.Addr) string { return "the CNI's record for " + addr.String() }

func podsAt(addr netip.Addr) string { return "the API server's pods with the address " + addr.String() }

func names(pods []*mappings.Pod) string {
	var all []string
	for _, pod := range pods {
		all = append(all, pod.Namespace+"/"+pod.Name)
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}
