package cli

import (
	"fmt"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"pod2role/credentials"
	"pod2role/mappings"
)

// The address goes from pod to pod, each with another role, while the API server still shows the one before with
// it, or several. The peers gave the role of a pod that was gone in each of a few hundred trials of this kind.
func TestTwoThousandReusesOfAnAddressGiveNoWrongRole(t *testing.T) {
	const reuses = 2000
	for _, k := range []kind{{recorded: true}, {attested: true}} {
		t.Run(k.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var total tally
				s, finish := start(t, k, 1, credentials.Config{Duration: 15 * time.Minute}, &total)
				s.allow("shop", "sim-", 0)
				s.sync()
				for i := range reuses {
					milliseconds := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }
					l := &life{uid: fmt.Sprint("uid-", i), name: fmt.Sprint("pod-", i%8), namespace: "shop", recordable: k.recorded}
					s.bear(l, wish{role: fmt.Sprint("sim-", i%50)}, milliseconds(i*37%1500))
					for !s.give(l) {
						<-time.After(10 * time.Millisecond)
					}
					ready := time.Now().Truncate(time.Second)
					time.AfterFunc(milliseconds(i*53%2000), func() {
						s.edit(l, milliseconds(i*71%1500), func(p *mappings.Pod) { p.Addrs, p.SandboxReady = []netip.Addr{l.addr}, ready })
					})
					s.ask(t.Context(), l, patient)
					s.requests.Wait()
					s.locked(func() { l.ended = true })
					s.takeBack(l, time.Millisecond)
					time.AfterFunc(milliseconds(i*97%5000), func() { s.remove(l, milliseconds(i*41%1500)) })
				}
				finish()
				if total.served != reuses {
					t.Errorf("%d of %d pods were given their sessions", total.served, reuses)
				}
				t.Logf("%d reuses: %v", reuses, &total)
			})
		})
	}
}
