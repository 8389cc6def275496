package cli

import (
	"net"
	"net/netip"
	"strings"
	"time"

	"pod2role/attest"
	"pod2role/cni"
	"pod2role/identity"
	"pod2role/mappings"
)

// This file joins rooms that do not know each other.

// wake makes held requests look again. Sources may call it before the daemon is assembled.
func (d *daemon) wake() {
	if d.identity != nil {
		d.identity.Wake()
	}
}

// podChanged is told of every change of a pod, after the view has changed.
func (d *daemon) podChanged(old, pod *mappings.Pod) {
	d.referrals.podChanged(old, pod)
	d.wake()
}

// namespaceChanged is told of every change of a namespace, after the view has changed.
func (d *daemon) namespaceChanged(old, ns *mappings.Namespace) {
	d.referrals.namespaceChanged(old, ns)
	d.wake()
}

// recordSource is the CNI's records as identity reads them, nil if there are none.
func (d *daemon) recordSource() identity.Records {
	if d.records == nil {
		return nil
	}
	return cniRecords{d.records, d.attest}
}

type cniRecords struct {
	index  *cni.Index
	kernel *attest.Attest
}

// Lookup implements identity.Records. An address without a record that is routed to the interface of exactly one pod is
// that pod's too: on EKS with IPv6, pods have one of 169.254.172.0/22 for IPv4, by which they reach the metadata
// service, and the record names the interface only
// (https://github.com/aws/amazon-vpc-cni-k8s/tree/master/cmd/egress-cni-plugin).
func (r cniRecords) Lookup(addr netip.Addr) (identity.Record, bool) {
	record, ok := r.index.Lookup(addr)
	if !ok {
		end := r.kernel.Route(addr)
		if end == "" {
			return identity.Record{}, false
		}
		record, ok = r.index.LookupInterface(end)
		record.HostInterface = end
	}
	return identity.Record{UID: record.UID, Namespace: record.Namespace, Name: record.Name, Interface: record.HostInterface}, ok
}

// TakenBack implements identity.Records.
func (r cniRecords) TakenBack(addr netip.Addr) (uid string, at time.Time) {
	return r.index.TakenBack(addr)
}

// recordsRead says whether the CNI's records have been read once.
func (d *daemon) recordsRead() bool {
	if d.records == nil {
		return true
	}
	select {
	case <-d.records.Ready():
		return true
	default:
		return false
	}
}

// attestClaim asks the kernel about a claim.
func (d *daemon) attestClaim(c identity.Claim) (identity.Attestation, string) {
	result, why := d.attest.Check(attest.Claim(c))
	return identity.Attestation(result), why
}

// ingress returns the index of the interface that a connection came in by, 0 where that is not known.
func ingress(conn net.Conn) int {
	index, _ := attest.Ingress(conn)
	return index
}

// redirected says whether a connection was meant for the metadata service. Where nothing of ours redirects, only
// --direct=allow lets anybody in.
func (d *daemon) redirected(conn net.Conn) (bool, error) {
	if d.redirect == nil {
		return false, nil
	}
	return d.redirect.Redirected(conn)
}

func sentence(parts []string) string { return strings.Join(parts, "; ") }
