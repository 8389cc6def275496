//go:build !linux

package iptables

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"runtime"
)

func newBackend(string) (backend, error) {
	return nil, fmt.Errorf("there is no netfilter on %s: %w", runtime.GOOS, ErrNotSupported)
}

func newRouting() routing { return nil }

// CutOver is for Linux only.
func (*Redirect) CutOver(context.Context) (int, error) { return 0, ErrNotSupported }

// OriginalDestination is for Linux only.
func OriginalDestination(net.Conn) (netip.AddrPort, error) { return netip.AddrPort{}, ErrNotSupported }
