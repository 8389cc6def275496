package iptables

import (
	"context"
	"slices"
	"time"
)

// Run keeps the rules as Apply made them until ctx ends: it looks when the kernel says that the table changed, and every
// Resync, and puts back what differs. Our own changes are seen too, and found right. When Run returns, the rules stay.
func (r *Redirect) Run(ctx context.Context) error {
	rules := &ear{open: r.backend.watch}
	routes := &ear{}
	if r.routing != nil {
		routes.open = r.routing.watch
	}
	defer rules.close()
	defer routes.close()
	timer := time.NewTimer(0) // the first look is at once
	defer timer.Stop()
	for {
		var changed *ear
		var ok bool
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C: // before the look, so that no change falls between
			for _, e := range []*ear{rules, routes} {
				if err := e.listen(); err != nil {
					r.log.WithError(err).Warn("the kernel does not report changes to its rules; looking on a timer only")
				}
			}
		case _, ok = <-rules.changes:
			changed = rules
		case _, ok = <-routes.changes:
			changed = routes
		}
		if changed != nil {
			if !ok { // the timer opens another
				changed.close()
			}
			if err := r.limiter.Wait(ctx); err != nil {
				return nil
			}
		}
		r.reconcile(ctx)
		timer.Reset(r.config.Resync)
	}
}

// An ear is a watcher that is opened again when it has failed.
type ear struct {
	open    func() (watcher, error) // nil: there is nothing to hear
	watcher watcher                 // nil: not now
	changes <-chan struct{}         // the watcher's
}

func (e *ear) listen() error {
	if e.open == nil || e.watcher != nil {
		return nil
	}
	w, err := e.open()
	if err != nil {
		return err
	}
	e.watcher, e.changes = w, w.changes()
	return nil
}

func (e *ear) close() {
	if e.watcher != nil {
		e.watcher.close()
	}
	e.watcher, e.changes = nil, nil
}

// reconcile looks once and repairs what differs.
func (r *Redirect) reconcile(ctx context.Context) {
	moved := r.followNodeAddrs(ctx)
	moved = r.followBranches() || moved
	found, err := r.inspect()
	if err != nil {
		r.metrics.complete.Set(0)
		r.log.WithError(err).Error("the redirect rules cannot be read")
		return
	}
	r.metrics.observe(found)
	if len(found.problems) == 0 || ctx.Err() != nil {
		return
	}
	if err := r.put(); err != nil {
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
	p.branches = r.plan().branches
	r.wanted.Store(&p)
	r.log.WithField("addresses", addrs).Warn("the node's addresses changed, and the redirect with them")
	return true
}

// followBranches changes the plan when pods with an interface of their own in the VPC have come or gone, and reports
// whether it did. While they cannot be read, the plan stays.
func (r *Redirect) followBranches() bool {
	if r.routing == nil {
		return false
	}
	found, err := r.routing.branches()
	if err != nil {
		r.log.WithError(err).Warn("whether pods have interfaces of their own in the VPC is not known")
		return false
	}
	p := r.plan()
	if slices.Equal(found, p.branches) {
		return false
	}
	p.branches = found
	r.wanted.Store(&p)
	return true
}
