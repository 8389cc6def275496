package cli

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sirupsen/logrus"

	"pod2role/sandbox/kubeapi"
	"pod2role/sandbox/sts"
)

// inWorld runs use in a world of its own.
func inWorld(t *testing.T, use func(ctx context.Context, w *world), args ...string) {
	t.Helper()
	log := logrus.New()
	log.SetOutput(io.Discard)
	if testing.Verbose() {
		log.SetOutput(t.Output())
	}
	routeKlog(logrus.NewEntry(log))
	err := runWorld(t.Context(), outside{log: logrus.NewEntry(log)}, func(ctx context.Context, w *world) error {
		if err := w.namespace("shop", `["shop-*"]`); err != nil {
			return err
		}
		use(ctx, w)
		return nil
	}, args...)
	if err != nil {
		t.Fatal(err)
	}
}

// pod starts a pod that has its address.
func (w *world) pod(t *testing.T, name, role string) demoPod {
	t.Helper()
	p, err := w.started("shop", name, role)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestManyColdRequestsForOneRoleMakeOneCall(t *testing.T) {
	inWorld(t, func(ctx context.Context, w *world) {
		w.sts.SetFaults(sts.Faults{Latency: 200 * time.Millisecond})
		const many = 200
		var wait sync.WaitGroup
		for i := range many {
			p := w.pod(t, fmt.Sprintf("job-%d", i), "shop-job")
			wait.Go(func() {
				if got, session := p.credentials(ctx); session.RoleARN != demoBaseARN+"shop-job" {
					t.Errorf("%s got %s", p, got.outcome())
				}
			})
		}
		wait.Wait()
		if n := w.sts.Count(demoBaseARN + "shop-job"); n != 1 {
			t.Errorf("STS was called %d times for %d pods, want once", n, many)
		}
	}, "--hold=25s") // a machine that is busy with other tests must not fail this one
}

func TestASessionIsFetchedBeforeThePodHasAnAddress(t *testing.T) {
	inWorld(t, func(ctx context.Context, w *world) {
		if _, err := w.schedule("shop", "soon", "shop-soon"); err != nil {
			t.Fatal(err)
		}
		if _, err := w.sts.Wait(ctx, 1, func(c sts.Call) bool { return c.RoleARN == demoBaseARN+"shop-soon" }); err != nil {
			t.Errorf("waiting for the call to STS: %v", err)
		}
	})
}

func TestAForbiddenRoleIsNeverAskedFor(t *testing.T) {
	inWorld(t, func(ctx context.Context, w *world) {
		thief, web := w.pod(t, "thief", "admin"), w.pod(t, "web", "shop-web")
		if got, _ := thief.credentials(ctx); got.code != http.StatusForbidden {
			t.Errorf("the thief got %s", got.outcome())
		}
		web.credentials(ctx)
		if n := w.sts.Count(demoBaseARN + "admin"); n != 0 {
			t.Errorf("STS was asked %d times for a role that no pod may have", n)
		}
	})
}

func TestAnAnnotationThatAllowsTheRoleTakesEffectAtOnce(t *testing.T) {
	inWorld(t, func(ctx context.Context, w *world) {
		p := w.pod(t, "admin", "admin")
		if got, _ := p.credentials(ctx); got.code != http.StatusForbidden {
			t.Errorf("before: %s", got.outcome())
		}
		if err := w.namespace("shop", `["admin"]`); err != nil {
			t.Fatal(err)
		}
		if _, err := w.sts.Wait(ctx, 1, func(c sts.Call) bool { return c.RoleARN == demoBaseARN+"admin" }); err != nil {
			t.Fatal(err)
		}
		if got, session := p.credentials(ctx); session.RoleARN != demoBaseARN+"admin" {
			t.Errorf("afterwards: %s", got.outcome())
		}
	})
}

func TestWithoutAnAPIServerTheDaemonIsNotReadyAndGivesNothing(t *testing.T) {
	inWorld(t, func(ctx context.Context, w *world) {
		p := w.pod(t, "web", "shop-web")
		if got, _ := p.credentials(ctx); got.code != http.StatusOK {
			t.Fatalf("before the outage: %s", got.outcome())
		}
		w.api.SetOutage(kubeapi.Refuse)
		if got, session := p.credentials(ctx); session.RoleARN != demoBaseARN+"shop-web" {
			t.Errorf("a known pod got %s during the outage", got.outcome())
		}
		stranger := demoPod{w: w, namespace: "shop", name: "stranger", uid: "stranger", addr: p.addr.Next().Next()}
		if got, _ := stranger.credentials(ctx); got.code != http.StatusServiceUnavailable {
			t.Errorf("an unknown address got %s during the outage", got.outcome())
		}
		w.api.SetOutage(kubeapi.Up)
	}, "--hold=1s")
}

func TestTheViewsSayWhyAndHoldNoSecret(t *testing.T) {
	inWorld(t, func(ctx context.Context, w *world) {
		web, thief := w.pod(t, "web", "shop-web"), w.pod(t, "thief", "admin")
		keys, _ := web.credentials(ctx)
		thief.credentials(ctx)
		secret, token := field(keys.body, "SecretAccessKey"), field(keys.body, "Token")
		if secret == "" || token == "" {
			t.Fatalf("no keys in %q", keys.body)
		}
		for path, want := range map[string]string{
			"/debug/pods": "does not allow pod shop/thief", "/debug/sessions": demoBaseARN + "shop-web", "/debug/explain?ip=" + thief.addr.String(): `"verdict": "forbidden"`,
			"/debug/sources": "shop/web", "/debug/store": `"rolesByIP"`, "/debug/held": "", "/debug/rules": `"redirect": "off"`, "/": "Ready.",
		} {
			response, err := new(http.Client).Get("http://" + w.debug + path)
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(response.Body)
			response.Body.Close()
			if err != nil || response.StatusCode != http.StatusOK || !strings.Contains(string(body), want) {
				t.Errorf("%s: %d, %v, %q is not in\n%s", path, response.StatusCode, err, want, body)
			}
			if strings.Contains(string(body), secret) || strings.Contains(string(body), token) {
				t.Errorf("%s shows a secret", path)
			}
		}
	})
}

func TestWithoutABaseARNItComesFromTheInstance(t *testing.T) {
	inWorld(t, func(ctx context.Context, w *world) {
		p := w.pod(t, "web", "shop-web")
		if got, session := p.credentials(ctx); session.RoleARN != demoBaseARN+"shop-web" {
			t.Errorf("got %s", got.outcome())
		}
	}, "--base-role-arn=")
}
