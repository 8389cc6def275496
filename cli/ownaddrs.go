package cli

import (
	"net"
	"net/netip"
	"sync/atomic"
	"time"
)

// ownAddrsLife is how long the list of this host's addresses is believed. Asking the kernel for each request would cost
// more than all the rest of an answer; and no address goes from a pod to the host within a second.
const ownAddrsLife = time.Second

// ownAddrs knows the addresses of this host, which identify no pod. The zero value is ready for use, by many at once.
type ownAddrs struct {
	list atomic.Pointer[ownAddrList]
}

type ownAddrList struct {
	read  time.Time
	addrs map[netip.Addr]struct{}
}

// contains tells whether addr is one of this host's own.
func (o *ownAddrs) contains(addr netip.Addr) bool {
	now := time.Now()
	list := o.list.Load()
	if list == nil || now.Sub(list.read) >= ownAddrsLife {
		list = &ownAddrList{read: now, addrs: map[netip.Addr]struct{}{}}
		found, err := net.InterfaceAddrs()
		if err != nil {
			return false // then the address is unknown, which grants nothing either
		}
		for _, a := range found {
			if prefix, err := netip.ParsePrefix(a.String()); err == nil {
				list.addrs[prefix.Addr().Unmap()] = struct{}{}
			}
		}
		o.list.Store(list)
	}
	_, ok := list.addrs[addr]
	return ok
}
