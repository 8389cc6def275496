package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/sirupsen/logrus"
	"golang.org/x/sync/errgroup"

	"pod2role/attest"
	"pod2role/cluster"
	"pod2role/cni"
	"pod2role/config"
	"pod2role/credentials"
	"pod2role/debug"
	"pod2role/identity"
	"pod2role/iptables"
	"pod2role/mappings"
	"pod2role/proxy"
)

const (
	// ruleRetry is how long to wait before rules that the kernel did not take are tried again.
	ruleRetry = 5 * time.Second
	// checkInterval is how often the rules are read back for readiness.
	checkInterval = 10 * time.Second
	// discoverRetry is how long to wait before the base ARN is looked for again.
	discoverRetry = 5 * time.Second
	// discoverTimeout is how long the instance is asked before STS is, as on a node without a metadata service.
	discoverTimeout = 10 * time.Second
	// removeTimeout bounds the removal of the rules at the end.
	removeTimeout = 5 * time.Second
	// firstRound is how long readiness waits for the sessions of the pods that are there at the start: one broken role
	// must not keep a node out of service.
	firstRound = 15 * time.Second
)

// daemon is the assembled program: see assemble.
type daemon struct {
	config   config.Config
	log      *logrus.Entry
	registry *prometheus.Registry

	decider   *mappings.Decider
	records   *cni.Index // nil: this source is switched off
	cluster   *cluster.Cluster
	attest    *attest.Attest
	identity  *identity.Resolver
	sts       *credentials.STS
	sessions  *credentials.Cache
	referrals *referrals
	redirect  *iptables.Redirect // nil: --redirect is not on
	answers   proxy.Config
	proxy     *proxy.Proxy // made of answers once the key for session tokens is known
	debug     *debug.Debug

	membership *cluster.Membership // nil: nobody said to which DaemonSet this daemon belongs

	ready        chan struct{} // closed when the daemon was ready for the first time
	readyOnce    sync.Once
	prepared     chan struct{} // closed when it was for the first time, but for what another process may still have
	preparedOnce sync.Once

	mu         sync.Mutex
	warmed     bool   // the sessions of the pods that were there at the start have been asked for
	baseARN    error  // why the base ARN is not known yet; nil: it is, or none is looked for
	ruleError  error  // why the rules are not in place; nil: they are, or there are none
	rulesKnown bool   // the rules have been looked at
	lastReport string // what was logged last about readiness
	warnings   string // what was logged last about the rules
	stopped    bool   // the daemon was told to stop
	waiting    string // why another process still serves; empty: this one does
	left       string // why the node no longer belongs to the DaemonSet, as logged last
}

// Run serves on l until ctx ends, which is no error. The order is: the listener was bound before; the rules; the watches
// and the first sessions; ready. At the end the rules stay, so that pods find a closed door and not the node's role, unless
// the node no longer belongs to the daemon's DaemonSet. Without l.app, another process may have its turn first.
func (d *daemon) Run(ctx context.Context, l listeners) error {
	if l.app != nil {
		_ = d.applyRules(ctx) // readiness tells
	}
	// Pods are answered until ctx ends and what is under way is finished; the rest goes on until then, because the last
	// answers need it too.
	rest, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	group, rest := errgroup.WithContext(rest)
	serving, cancel := context.WithCancel(ctx)
	defer cancel()
	context.AfterFunc(rest, cancel)
	run := func(what string, f func(context.Context) error) {
		group.Go(func() error {
			if err := f(rest); err != nil {
				return fmt.Errorf("%s: %w", what, err)
			}
			return nil
		})
	}
	t := &turn{daemon: d, run: run, rest: rest, answer: func(l net.Listener) error {
		defer stop()
		return d.proxy.Run(serving, l)
	}}
	if l.probe != nil {
		run("answering probes", func(ctx context.Context) error { return d.debug.Run(ctx, l.probe, nil) })
	}
	if l.app != nil {
		key, err := newTokenKey()
		if err == nil {
			err = t.start(l, key)
		}
		if err != nil {
			l.close()
			stop()
			return errors.Join(err, group.Wait())
		}
		t.keepRules()
	} else {
		d.setWaiting("the sockets are not open yet")
		run("beginning to serve", func(context.Context) error {
			if !t.begin(serving) {
				stop() // there is nothing to finish
			}
			return nil
		})
	}
	context.AfterFunc(ctx, d.stopping)
	run("following the kernel", d.attest.Run)
	if d.records != nil {
		run("following the CNI's records", d.records.Run)
	}
	run("following the API server", d.cluster.Run)
	if d.membership != nil {
		run("following the own DaemonSet", d.membership.Run)
	}
	run("keeping sessions", d.sessions.Run)
	run("looking for the base ARN", d.discover)
	run("becoming ready", d.becomeReady)
	if err := group.Wait(); err != nil {
		return err
	}
	if t.isOurs() {
		d.removeRules(context.WithoutCancel(ctx))
	}
	return nil
}

// stopping makes the daemon not ready while it finishes what it is answering.
func (d *daemon) stopping() {
	d.mu.Lock()
	d.stopped = true
	d.mu.Unlock()
	d.reportReadiness()
}

// Ready is closed when the daemon was ready for the first time.
func (d *daemon) Ready() <-chan struct{} { return d.ready }

// keepRules keeps the rules in place, tries again where the kernel did not take them, and reads them back.
func (d *daemon) keepRules(ctx context.Context) error {
	for d.ruleProblem() != nil {
		if !wait(ctx, ruleRetry) {
			return nil
		}
		_ = d.applyRules(ctx) // ruleProblem tells
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return d.redirect.Run(ctx) })
	group.Go(func() error {
		for wait(ctx, checkInterval) {
			d.checkRules(ctx)
		}
		return nil
	})
	return group.Wait()
}

// applyRules puts the rules in, if there are any. What goes wrong makes the daemon not ready; it does not end it, because
// pods would find the real service all the same. The error is that the kernel did not take them.
func (d *daemon) applyRules(ctx context.Context) error {
	if d.redirect == nil {
		d.setRules(nil)
		return nil
	}
	if err := d.redirect.Apply(ctx); err != nil {
		err = fmt.Errorf("putting the redirect into the kernel: %w", err)
		d.setRules(err)
		return err
	}
	d.checkRules(ctx)
	return nil
}

// checkRules reads the rules back.
func (d *daemon) checkRules(ctx context.Context) {
	status, err := d.redirect.Check(ctx)
	switch {
	case ctx.Err() != nil:
		return
	case err != nil:
		err = fmt.Errorf("reading the redirect back from the kernel: %w", err)
	case !status.Complete:
		err = fmt.Errorf("the redirect is not whole: %s", sentence(status.Problems))
	case !status.First:
		err = errors.New("another program's rule for the metadata address is consulted before ours: see /debug/rules")
	}
	d.setRules(err)

	warnings := sentence(status.Warnings)
	d.mu.Lock()
	changed := warnings != d.warnings
	d.warnings = warnings
	d.mu.Unlock()
	if changed && warnings != "" {
		d.log.WithField("warnings", warnings).Warn("something about the redirect deserves a look")
	}
}

func (d *daemon) setRules(err error) {
	d.mu.Lock()
	d.ruleError, d.rulesKnown = err, true
	d.mu.Unlock()
	d.reportReadiness()
}

func (d *daemon) ruleProblem() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.ruleError
}

// discover finds the base ARN if it is not configured, and tries until it has.
func (d *daemon) discover(ctx context.Context) error {
	if d.config.BaseRoleARN != "" || !d.config.AutoDiscoverBaseARN {
		return nil
	}
	for {
		base, err := d.findBaseARN(ctx)
		if err == nil {
			err = d.decider.SetBaseARN(base)
		}
		if ctx.Err() != nil {
			return nil
		}
		d.mu.Lock()
		d.baseARN = err
		d.mu.Unlock()
		d.reportReadiness()
		if err == nil {
			d.log.WithField("baseARN", base).Info("base ARN discovered")
			d.referrals.judge(func(*mappings.Pod) bool { return true })
			d.wake()
			return nil
		}
		if !wait(ctx, discoverRetry) {
			return nil
		}
	}
}

// findBaseARN asks the instance, and where there is none, STS.
func (d *daemon) findBaseARN(ctx context.Context) (string, error) {
	var instance error
	if d.config.Metadata != "emulate" {
		asking, cancel := context.WithTimeout(ctx, discoverTimeout) // it repeats as long as it may
		base, err := credentials.DiscoverBaseARN(asking, "http://"+net.JoinHostPort(d.config.MetadataAddrPort()))
		cancel()
		if err == nil {
			return base, nil
		}
		instance = err
	}
	asking, cancel := context.WithTimeout(ctx, discoverTimeout)
	defer cancel()
	base, err := d.sts.BaseARN(asking)
	if err != nil {
		return "", fmt.Errorf("discovering the base ARN (give --base-role-arn to do without): %w", errors.Join(instance, err))
	}
	return base, nil
}

// becomeReady waits for the first round of everything and says when the daemon is ready.
func (d *daemon) becomeReady(ctx context.Context) error {
	if d.records != nil {
		select {
		case <-d.records.Ready():
			d.wake()
		case <-ctx.Done():
			return nil
		}
	}
	for d.cluster.WaitForSync(ctx) != nil {
		if !wait(ctx, time.Second) {
			return nil
		}
	}
	d.wake()
	round, cancel := context.WithTimeout(ctx, firstRound)
	defer cancel()
	if err := d.sessions.Settle(round); err != nil && ctx.Err() == nil {
		d.log.Warn("some roles have no session yet; going on without them")
	}
	d.mu.Lock()
	d.warmed = true
	d.mu.Unlock()
	d.reportReadiness()
	return nil
}

// unprepared returns what is missing before this process can serve pods as they should be, whoever serves them now.
func (d *daemon) unprepared() []string {
	var missing []string
	if !d.cluster.Synced() {
		missing = append(missing, "the API server has not told yet which pods are on this node")
	}
	if !d.recordsRead() {
		missing = append(missing, "the CNI's records have not been read yet")
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.baseARN != nil {
		missing = append(missing, d.baseARN.Error())
	}
	if len(missing) == 0 && !d.warmed {
		missing = append(missing, "the first sessions are being fetched")
	}
	return missing
}

// notReady returns what is missing before this process serves pods as they should be.
func (d *daemon) notReady() []string {
	missing := d.unprepared()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.stopped {
		missing = append(missing, "the daemon is stopping")
	}
	switch {
	case d.waiting != "":
		missing = append(missing, d.waiting)
	case d.ruleError != nil:
		missing = append(missing, d.ruleError.Error())
	case !d.rulesKnown:
		missing = append(missing, "the redirect has not been put in yet")
	}
	return missing
}

// setWaiting says why another process still serves, or, with an empty text, that this one does.
func (d *daemon) setWaiting(why string) {
	d.mu.Lock()
	d.waiting = why
	d.mu.Unlock()
	d.reportReadiness()
}

// reportReadiness logs readiness when it changed.
func (d *daemon) reportReadiness() {
	if len(d.unprepared()) == 0 {
		d.preparedOnce.Do(func() { close(d.prepared) })
	}
	report := sentence(d.notReady())
	d.mu.Lock()
	changed := report != d.lastReport
	d.lastReport = report
	d.mu.Unlock()
	switch {
	case report == "":
		first := false
		d.readyOnce.Do(func() { first = true; close(d.ready) })
		if first || changed {
			d.log.WithField("port", d.config.AppPort).Info("ready")
		}
	case changed:
		d.log.WithField("missing", report).Warn("not ready")
	}
}

// reportMembership logs that the node has left the DaemonSet, or is back.
func (d *daemon) reportMembership() {
	why, _ := d.membership.Left()
	d.mu.Lock()
	changed := why != d.left
	d.left = why
	d.mu.Unlock()
	switch {
	case !changed:
	case why == "":
		d.log.Info("this node belongs to the DaemonSet again: redirect and lock stay when the daemon stops")
	default:
		d.log.WithField("reason", why).Warn("this node no longer belongs to the DaemonSet: redirect and lock go when the daemon stops")
	}
}

// removeRules takes the rules out if the node has left the daemon's DaemonSet. That is known from what was seen before: at
// an uninstallation the daemon may ask nobody any more, and whoever cannot be asked has not said that they should go.
func (d *daemon) removeRules(ctx context.Context) {
	if d.redirect == nil || d.membership == nil {
		return
	}
	why, left := d.membership.Left()
	if !left {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, removeTimeout)
	defer cancel()
	log := d.log.WithField("reason", why)
	if err := d.redirect.Remove(ctx); err != nil {
		log.WithError(err).Error("redirect and lock could not be removed; pod2role rules remove does it by hand")
		return
	}
	log.Info("redirect and lock are removed: pods of this node reach the real metadata service again")
}

// wait waits for d or until ctx ends, which it reports as false.
func wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// explain says what the pod at addr may have, and why. It does not wait for what is not known.
func (d *daemon) explain(ctx context.Context, addr netip.Addr) *mappings.Decision {
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	return d.identity.Resolve(ctx, addr, 0)
}
