package iptables

import "errors"

var (
	// ErrNotPermitted means that the process may not change the node's netfilter rules.
	ErrNotPermitted = errors.New("it may not change the network: give the container the capability NET_ADMIN and hostNetwork: true")
	// ErrNotSupported means that this kernel cannot hold the rules.
	ErrNotSupported = errors.New("this kernel cannot hold the rules: it takes Linux 5.9 or newer with the modules nf_tables, nft_chain_nat, nft_nat and nft_reject_inet")
	// ErrNoIptables means that the command iptables is not there.
	ErrNoIptables = errors.New("the command iptables is missing: use the image that has it, or --redirect-backend=nftables")
	// ErrNotRedirected means that a connection was dialled to the address on which it was accepted: no rule sent it there.
	ErrNotRedirected = errors.New("the connection was not redirected")
)

// ignoreNotRedirected returns nil for ErrNotRedirected, and every other error as it is.
func ignoreNotRedirected(err error) error {
	if errors.Is(err, ErrNotRedirected) {
		return nil
	}
	return err
}
