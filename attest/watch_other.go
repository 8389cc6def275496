//go:build !linux

package attest

import "context"

// notifications are Linux's only.
type notifications struct{}

// Run waits until ctx ends: only Linux tells what stands behind an address, so every claim is [Unavailable].
func (a *Attest) Run(ctx context.Context) error {
	a.once.Do(func() { close(a.ready) })
	<-ctx.Done()
	return nil
}

// CatchUp does nothing: only Linux tells.
func (a *Attest) CatchUp() {}
