package iptables

import (
	"context"
	"slices"
	"time"
)

// Run keeps the rules as Apply made them until ctx ends: it looks when the kernel says that the table changed, and every
// Resync, and puts back what differs. Our own changes are seen too, and found right. When Run returns, the rules stay.
func (r *Redirect) Run(ctx context.Context) error {
	var (
		w       watcher
		changes <-chan struct{}
	)
	defer func() {
		if w != nil {
			w.close()
		}
	}()
	timer := time.NewTimer(0) // the first look is at once
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
			if w == nil { // before the look, so that no change falls between
				var err error
				if w, err = r.backend.watch(); err != nil {
					r.log.WithError(err).Warn("the kernel does not report changes to its rules; looking on a timer only")
					w = nil
				} else {
					changes = w.changes()
				}
			}
		case _, ok := <-changes:
			if !ok { // the timer opens another
				w.close()
				w, changes = nil, nil
			}
			if err := r.limiter.Wait(ctx); err != nil {
				return nil
			}
		}
		r.reconcile(ctx)
		timer.Reset(r.config.Resync)
	}
}

// reconcile looks once and repairs what differs.
func (r *Redirect) reconcile(ctx context.Context) {
	moved := r.followNodeAddrs(ctx)
	found, err := r.backend.inspect(r.plan())
	if err != nil {
		r.metrics.complete.Set(0)
		r.log.WithError(err).Error("the redirect rules cannot be read")
		return
	}
	r.metrics.observe(found)
	if len(found.problems) == 0 || ctx.Err() != nil {
		return
	}
	if err := r.backend.apply(r.plan()); err != nil {
		r.log.WithError(err).WithField("problems", found.problems).Error("the redirect rules were changed and cannot be put back")
		return
	}
	r.metrics.complete.Set(1)
	if moved {
		return
	}
	r.metrics.repairs.Inc()
	r.log.WithField("problems", found.problems).Warn("the redirect rules were changed by somebody else and are put back")
}

// followNodeAddrs changes the plan when the node's addresses have changed, and reports whether it did.
func (r *Redirect) followNodeAddrs(ctx context.Context) bool {
	if r.config.CurrentNodeAddrs == nil {
		return false
	}
	addrs, err := r.config.CurrentNodeAddrs(ctx)
	if ctx.Err() != nil {
		return false
	}
	c := r.config
	c.NodeAddrs = addrs
	var p plan
	if err == nil {
		p, err = newPlan(c)
	}
	if err != nil {
		r.log.WithError(err).Warn("the node's addresses are not known now; the redirect stays as it is")
		return false
	}
	if slices.Equal(p.redirect, r.plan().redirect) {
		return false
	}
	r.wanted.Store(&p)
	r.log.WithField("addresses", addrs).Warn("the node's addresses changed, and the redirect with them")
	return true
}
