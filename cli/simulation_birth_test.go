package cli

import (
	"context"
	"math/rand/v2"
	"net/netip"
	"strconv"
	"time"

	"pod2role/mappings"
)

// wishOf is what a pod of the given name may ask for: mostly one of the roles that several share.
func wishOf(r *rand.Rand, name string) wish {
	w := wish{role: "sim-shared-" + strconv.Itoa(r.IntN(2))}
	switch r.IntN(6) {
	case 0:
		w = wish{}
	case 1, 2:
		w.role = "sim-own-" + name
	case 3:
		w.externalID = []string{"x1-external", "y2-external"}[r.IntN(2)]
	case 4:
		w.sessionName = "of-" + name
	}
	return w
}

// birth has a pod live its life: bound to the node, given an address, started, reported, edited, ended, taken away.
func (s *simulation) birth(r *rand.Rand, name string, after, most time.Duration) {
	l := &life{uid: "uid-" + name, name: "pod-" + strconv.Itoa(r.IntN(8)), namespace: []string{"shop", "shop", "lab"}[r.IntN(3)]}
	l.recordable = s.recorded && (!s.attested || r.IntN(6) > 0)
	var lags [6]time.Duration
	for i := range lags {
		lags[i] = between(r, 5*time.Millisecond, 1500*time.Millisecond)
	}
	first, second := wishOf(r, name), wishOf(r, name)
	given := between(r, 50*time.Millisecond, 500*time.Millisecond)
	started := between(r, 10*time.Millisecond, 200*time.Millisecond)
	reported := between(r, 100*time.Millisecond, 3*time.Second)
	lasts := between(r, 300*time.Millisecond, most)
	edited, finishes := r.IntN(3) == 0, r.IntN(3) == 0
	torn := s.attested && r.IntN(4) == 0
	freed, removed := between(r, 0, 300*time.Millisecond), between(r, 50*time.Millisecond, 5*time.Second)
	reused := between(r, time.Millisecond, 50*time.Millisecond)
	linger := r.IntN(2) == 0 // its open requests are not cut when it ends
	asks := make([]client, 12)
	at := started
	for i := range asks {
		asks[i] = client{after: at, way: way(r.IntN(3))}
		if at += between(r, 0, 2*time.Second); i > 6 {
			at += between(r, 0, lasts/4)
		}
	}

	time.AfterFunc(after, func() { s.bear(l, first, lags[0]) })
	time.AfterFunc(after+given, func() {
		if !s.give(l) {
			s.remove(l, lags[1]) // no room
			return
		}
		ready := time.Now().Truncate(time.Second)
		time.AfterFunc(reported, func() {
			if !s.over(l) {
				s.edit(l, lags[1], func(p *mappings.Pod) { p.Addrs, p.SandboxReady = []netip.Addr{l.addr}, ready })
			}
		})
		ctx, cancel := context.WithCancel(s.t.Context())
		for _, c := range asks {
			if c.after < lasts {
				time.AfterFunc(c.after, func() { s.ask(ctx, l, c.way) })
			}
		}
		if edited {
			time.AfterFunc(lasts/2, func() { s.annotate(l, second, lags[2]) })
		}
		if torn {
			time.AfterFunc(lasts/3, func() { s.tear(l, removed) })
		}
		time.AfterFunc(lasts, func() {
			s.locked(func() { l.ended = true })
			if !linger {
				cancel()
			}
		})
		time.AfterFunc(lasts+10*time.Second, cancel)
		time.AfterFunc(lasts+freed, func() { s.takeBack(l, reused) })
		time.AfterFunc(lasts+freed+removed, func() {
			if finishes {
				s.edit(l, lags[3], func(p *mappings.Pod) { p.Finished = true })
				time.AfterFunc(10*time.Second, func() { s.remove(l, lags[5]) })
				return
			}
			s.edit(l, lags[3], func(p *mappings.Pod) { p.Deleting = true })
			s.remove(l, lags[4])
		})
	})
}

// stranger has a process that is no pod use an address for a while, which pods had before and will have after.
func (s *simulation) stranger(after, lasts time.Duration) {
	time.AfterFunc(after, func() {
		l := &life{}
		if !s.give(l) {
			return
		}
		s.ask(s.t.Context(), l, patient)
		time.AfterFunc(lasts, func() {
			s.locked(func() { l.ended = true })
			s.takeBack(l, time.Second)
		})
	})
}
