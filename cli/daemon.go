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
	proxy     *proxy.Proxy
	debug     *debug.Debug

	ready     chan struct{} // closed when the daemon was ready for the first time
	readyOnce sync.Once

	mu         sync.Mutex
	warmed     bool   // the sessions of the pods that were there at the start have been asked for
	baseARN    error  // why the base ARN is not known yet; nil: it is, or none is looked for
	location   error  // why it is not known yet where the node is; nil: it is, or it need not be known
	ruleError  error  // why the rules are not in place; nil: they are, or there are none
	rulesKnown bool   // the rules have been looked at
	lastReport string // what was logged last about readiness
	warnings   string // what was logged last about the rules
	stopped    bool   // the daemon was told to stop
}

// Run serves on l until ctx ends, which is no error. The order is: the listener was bound before; the rules; the watches
// and the first sessions; ready. At the end the rules stay, so that pods find a closed door and not the node's role.
func (d *daemon) Run(ctx context.Context, l listeners) error {
	if err := attest.WithIngress(l.app); err != nil {
		d.log.WithError(err).Warn("the kernel does not tell by which interface connections come in")
	}
	if d.redirect != nil {
		d.applyRules(ctx)
	} else {
		d.setRules(nil)
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
	run("answering pods", func(context.Context) error {
		defer stop()
		return d.proxy.Run(serving, l.app)
	})
	context.AfterFunc(ctx, d.stopping)
	run("serving the operator", func(ctx context.Context) error { return d.debug.Run(ctx, l.metrics, l.debug) })
	run("following the kernel", d.attest.Run)
	if d.records != nil {
		run("following the CNI's records", d.records.Run)
	}
	run("following the API server", d.cluster.Run)
	run("keeping sessions", d.sessions.Run)
	if d.redirect != nil {
		run("keeping the rules", d.keepRules)
	}
	run("looking for the base ARN", d.discover)
	run("looking for the zone", d.locate)
	run("becoming ready", d.becomeReady)
	return group.Wait()
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
		d.applyRules(ctx)
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

// applyRules puts the rules in. What goes wrong makes the daemon not ready; it does not end it, because pods would find
// the real service all the same.
func (d *daemon) applyRules(ctx context.Context) {
	if err := d.redirect.Apply(ctx); err != nil {
		d.setRules(fmt.Errorf("putting the redirect into the kernel: %w", err))
		return
	}
	d.checkRules(ctx)
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

// notReady returns what is missing before pods can be served as they should be.
func (d *daemon) notReady() []string {
	var missing []string
	if !d.cluster.Synced() {
		missing = append(missing, "the API server has not told yet which pods are on this node")
	}
	if !d.recordsRead() {
		missing = append(missing, "the CNI's records have not been read yet")
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.stopped {
		missing = append(missing, "the daemon is stopping")
	}
	if d.ruleError != nil {
		missing = append(missing, d.ruleError.Error())
	} else if !d.rulesKnown {
		missing = append(missing, "the redirect has not been put in yet")
	}
	if d.baseARN != nil {
		missing = append(missing, d.baseARN.Error())
	}
	if d.location != nil {
		missing = append(missing, d.location.Error())
	}
	if len(missing) == 0 && !d.warmed {
		missing = append(missing, "the first sessions are being fetched")
	}
	return missing
}

// reportReadiness logs readiness when it changed.
func (d *daemon) reportReadiness() {
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
