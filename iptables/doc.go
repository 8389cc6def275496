// Package iptables redirects the pods' metadata traffic to the proxy and keeps it so.
//
// [New] works out the desired state once, as a value; [Redirect.Apply] makes the kernel hold it, in one transaction;
// [Redirect.Run] puts it back when somebody changed it, and leaves it in place at the end, so that a daemon that is down
// closes the way to the real service instead of opening it. [Redirect.Remove] takes it out, whichever back end put it in.
// Nobody else's rule is touched.
//
// The first back end is nftables over netlink: the table "inet pod2role", which is ours alone. Two chains hang in
// prerouting. "proxy" is consulted before all that iptables, kube2iam, Kiam or a CNI plugin put into nat chains, and sends
// TCP for the metadata address's port 80 to the proxy. "lock" comes after NAT and rejects whatever a pod still sends to a
// metadata address, on any port, by any protocol, of IPv4 and of IPv6: NAT alone is no lock, because a notrack rule, a
// flushed chain or another NAT rule in front lets packets through as they are. Requests of the host itself do not pass
// prerouting and stay as they are.
//
// The second is iptables, of the kind that the host uses, for kernels that cannot hold that. Its chains POD2ROLE-REDIRECT
// and POD2ROLE-LOCK are jumped to from the first place of nat PREROUTING, of filter FORWARD and INPUT, where what was not
// redirected is answered with a reset, and of the same in security, which drops what a rule in front has accepted. What
// iptables-nft holds is watched as above; iptables-legacy tells nobody of changes and is looked at every few seconds.
//
// Pods with security groups of their own on EKS are routed past the node's own table; while there are any, their requests
// and answers are marked and routed by rules of ours.
//
// Every method opens its sockets on the calling goroutine, so the network namespace is that of its thread; in the daemon
// that is the node's. The capability NET_ADMIN is all that is needed, except that iptables-legacy takes NET_RAW too. Only this package speaks netfilter, and it imports
// nothing else of the module.
package iptables
