//go:build !linux

package attest

import (
	"errors"
	"net"
)

// Ingress says that the interface is not known: only Linux tells it.
func Ingress(net.Conn) (index int, ok bool) { return 0, false }

// WithIngress says that the system cannot.
func WithIngress(net.Listener) error { return errors.ErrUnsupported }
