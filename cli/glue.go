package cli

import (
	"net"
	"net/netip"
	"slices"
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
	return cniRecords{d.records}
}

type cniRecords struct{ index *cni.Index }

// Lookup implements identity.Records.
func (r cniRecords) Lookup(addr netip.Addr) (identity.Record, bool) {
	record, ok := r.index.Lookup(addr)
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

// ingress returns the index of the interface that a connection came in by, 0 where that is not known. Of an IPv6
// connection that a bridge has sent through the node's rules itself (br_netfilter, as Kubernetes nodes have it), the
// kernel names the interface that holds the address it was redirected to (net/ipv6/ip6_input.c, ip6_rcv_core), which
// tells nothing of where it came from.
func ingress(conn net.Conn) int {
	index, ok := attest.Ingress(conn)
	if !ok || holdsIPv6(index, conn.LocalAddr()) {
		return 0
	}
	return index
}

// holdsIPv6 says whether the interface has the address, and it is one of IPv6.
func holdsIPv6(index int, addr net.Addr) bool {
	tcp, ok := addr.(*net.TCPAddr)
	if !ok || tcp.IP.To4() != nil {
		return false
	}
	link, err := net.InterfaceByIndex(index)
	if err != nil {
		return false
	}
	addrs, err := link.Addrs()
	return err == nil && slices.ContainsFunc(addrs, func(a net.Addr) bool {
		prefix, isPrefix := a.(*net.IPNet)
		return isPrefix && prefix.IP.Equal(tcp.IP)
	})
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
