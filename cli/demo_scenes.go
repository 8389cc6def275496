package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"pod2role/sandbox/kubeapi"
	"pod2role/sandbox/sts"
)

// play plays all scenes. Its error is about the demo itself; what the daemon did wrong is on the stage.
func play(ctx context.Context, w *world, s *stage) error {
	if err := errors.Join(w.namespace("shop", `["shop-*"]`), w.namespace("lab", "")); err != nil {
		return err
	}
	s.scene("Namespace shop allows its pods the roles shop-*; namespace lab allows none.")
	web, err := w.started("shop", "web", "shop-web")
	if err != nil {
		return err
	}
	worker, err := w.started("shop", "worker", "shop-worker")
	if err != nil {
		return err
	}
	web.expectRole(ctx, s, "shop-web")
	worker.expectRole(ctx, s, "shop-worker")

	thief, err := w.started("shop", "thief", "admin")
	if err != nil {
		return err
	}
	lab, err := w.started("lab", "notebook", "lab-reader")
	if err != nil {
		return err
	}
	plain, err := w.started("lab", "plain", "")
	if err != nil {
		return err
	}
	typo, err := w.started("shop", "typo", "arn:aws:iam::123:role/shop-web")
	if err != nil {
		return err
	}
	s.scene("Who is refused, and why. The pod is told only that; its operator reads the reason.")
	for _, refused := range []struct {
		pod  demoPod
		code int
	}{{thief, http.StatusForbidden}, {lab, http.StatusForbidden}, {typo, http.StatusForbidden}, {plain, http.StatusNotFound}} {
		refused.pod.expectRefusal(ctx, s, refused.code)
	}

	for _, scene := range []func(context.Context, *world, *stage, demoPod) error{tricks, passThrough, early, storm, reuse, outage} {
		if err := scene(ctx, w, s, web); err != nil {
			return err
		}
	}
	leaks := w.imds.SecretHits()
	s.scene("Through all of this:")
	s.line(len(leaks) == 0, "the real metadata service", "was asked %d times, and for a secret %d times", len(w.imds.Hits()), len(leaks))
	return nil
}

// started is a pod that has its address and is reported running.
func (w *world) started(namespace, name, role string) (demoPod, error) {
	p, err := w.schedule(namespace, name, role)
	if err != nil {
		return p, err
	}
	return p, p.run()
}

// expectRole asks as an SDK does and shows whose credentials came.
func (p demoPod) expectRole(ctx context.Context, s *stage, role string) {
	got, session := p.credentials(ctx)
	if got.code != http.StatusOK || session.RoleARN == "" {
		s.line(false, p.label(), "got %s instead of its role", got.outcome())
		return
	}
	s.line(session.RoleARN == demoBaseARN+role, p.label(), "%s, as session %s, in %s", session.RoleARN, session.Name, milliseconds(got.took))
}

// expectRefusal asks as an SDK does and shows what the pod is told, and what the operator can read.
func (p demoPod) expectRefusal(ctx context.Context, s *stage, code int) {
	got, _ := p.credentials(ctx)
	s.line(got.code == code && len(p.w.imds.Leaks([]byte(got.body))) == 0, p.label(), "%s: %s", got.outcome(), p.w.daemon.explain(ctx, p.addr).Reason)
}

func tricks(ctx context.Context, w *world, s *stage, web demoPod) error {
	s.scene("What a pod may try. No answer may hold anything of the node or of another pod.")
	for _, trick := range []struct {
		what, method, path string
		header             []string
	}{
		{"another pod's role", "GET", listPath + "shop-worker", nil},
		{"the node's role", "GET", listPath + w.imds.Config().Role, nil},
		{"odd slashes", "GET", "//latest//meta-data/iam//security-credentials/" + w.imds.Config().Role, nil},
		{"an escaped path", "GET", "/latest/meta-data/%69am/security-credentials/" + w.imds.Config().Role, nil},
		{"a path with dots", "GET", "/latest/meta-data/x/../iam/security-credentials/" + w.imds.Config().Role, nil},
		{"an old version", "GET", "/2009-04-04/meta-data/iam/security-credentials/" + w.imds.Config().Role, nil},
		{"the instance's identity", "GET", "/latest/meta-data/identity-credentials/ec2/security-credentials/ec2-instance", nil},
		{"a signed document", "GET", "/latest/dynamic/instance-identity/pkcs7", nil},
		{"user data", "GET", "/latest/user-data", nil},
		{"a forwarded token", "PUT", tokenPath, []string{"X-aws-ec2-metadata-token-ttl-seconds", "60", "X-Forwarded-For", "127.0.0.3"}},
	} {
		got := web.ask(ctx, trick.method, trick.path, trick.header...)
		s.line(got.err == nil && got.code >= 400 && len(w.imds.Leaks([]byte(got.body))) == 0, trick.what, "%s for %s %s", got.outcome(), trick.method, trick.path)
	}
	return nil
}

func passThrough(ctx context.Context, w *world, s *stage, web demoPod) error {
	s.scene("What carries no secret is passed through.")
	for _, open := range []struct{ path, want string }{
		{"/latest/meta-data/placement/availability-zone", w.imds.Config().Zone},
		{"/latest/meta-data/instance-id", w.imds.Config().InstanceID},
	} {
		got := web.ask(ctx, http.MethodGet, open.path)
		s.line(got.code == http.StatusOK && got.body == open.want, "shop/web", "%s %s for GET %s", got.outcome(), got.body, open.path)
	}
	return nil
}

// early: the CNI has given the pod its address, its process asks at once, and the API server will not say for a while
// which address the pod has.
func early(ctx context.Context, w *world, s *stage, _ demoPod) error {
	s.scene("A pod that asks before the API server knows its address: the CNI's own record tells who it is.")
	p, err := w.schedule("shop", "early", "shop-early")
	if err != nil {
		return err
	}
	if err := p.give(); err != nil {
		return err
	}
	p.expectRole(ctx, s, "shop-early")
	return nil
}

// storm: many pods of one role start at once, while STS takes its time.
func storm(ctx context.Context, w *world, s *stage, _ demoPod) error {
	const many = 60
	s.scene(fmt.Sprintf("%d pods of one role that start at once, STS taking 300 ms: one call serves them all.", many))
	w.sts.SetFaults(sts.Faults{Latency: 300 * time.Millisecond})
	defer w.sts.SetFaults(sts.Faults{})
	var wait sync.WaitGroup
	var mu sync.Mutex
	served, slowest := 0, time.Duration(0)
	for i := range many {
		p, err := w.schedule("shop", fmt.Sprintf("job-%d", i), "shop-job")
		if err != nil {
			return err
		}
		wait.Go(func() {
			if p.give() != nil {
				return
			}
			got, session := p.credentials(ctx)
			mu.Lock()
			defer mu.Unlock()
			if session.RoleARN == demoBaseARN+"shop-job" {
				served++
			}
			slowest = max(slowest, got.took)
		})
	}
	wait.Wait()
	calls := w.sts.Count(demoBaseARN + "shop-job")
	s.line(served == many, "shop/job-*", "%d of %d got shop-job at the first attempt, the slowest in %s", served, many, milliseconds(slowest))
	s.line(calls == 1, "STS", "was asked for shop-job %d time(s)", calls)
	return nil
}

// reuse: the API server stops telling anything; a pod ends and another gets its address.
func reuse(ctx context.Context, w *world, s *stage, _ demoPod) error {
	s.scene("The API server falls silent, a pod ends, and another gets its address.")
	old, err := w.started("shop", "old", "shop-old")
	if err != nil {
		return err
	}
	old.expectRole(ctx, s, "shop-old")
	fresh, err := w.schedule("shop", "fresh", "shop-fresh")
	if err != nil {
		return err
	}
	if _, err := w.daemon.cluster.ReadPod(ctx, fresh.namespace, fresh.name); err != nil { // the daemon has heard of it
		return err
	}
	w.api.SetOutage(kubeapi.Hang)
	defer w.api.SetOutage(kubeapi.Up)
	if err := w.records.Remove(old.attachment()); err != nil {
		return err
	}
	fresh.addr = old.addr
	if err := fresh.give(); err != nil {
		return err
	}
	fresh.expectRole(ctx, s, "shop-fresh")
	return nil
}

// outage: STS is away, and nobody notices.
func outage(ctx context.Context, w *world, s *stage, web demoPod) error {
	s.scene("STS is away: sessions are served as long as they are valid.")
	w.sts.SetFaults(sts.Faults{Outage: sts.Unavailable})
	defer w.sts.SetFaults(sts.Faults{})
	web.expectRole(ctx, s, "shop-web")
	return nil
}

func (p demoPod) label() string { return fmt.Sprintf("%s (%s)", p, p.addr) }

// outcome is an answer's status in words.
func (a answer) outcome() string {
	if a.err != nil {
		return a.err.Error()
	}
	return fmt.Sprintf("%d %s", a.code, http.StatusText(a.code))
}

func milliseconds(d time.Duration) string { return fmt.Sprintf("%d ms", d.Milliseconds()) }
