//go:build !linux

package attest

import (
	"net/netip"
	"time"
)

// Moved always reports false: only Linux tells.
func (a *Attest) Moved(netip.Addr, time.Time) bool { return false }
