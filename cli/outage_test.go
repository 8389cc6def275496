package cli

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pod2role/credentials"
	"pod2role/sandbox/kubeapi"
	"pod2role/sandbox/sts"
)

// STS fails, and then hangs, for three quarters of an hour at a time, past the moment at which sessions are renewed and
// until shortly before they end.
func TestNoRequestFailsWhileASessionLives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var total tally
		s, finish := start(t, kind{recorded: true}, 3, credentials.Config{Duration: time.Hour}, &total)
		s.allow("shop", "sim-", 0)
		s.sync()
		lives := make([]*life, 3)
		for i := range lives {
			l := &life{uid: fmt.Sprint("uid-", i), name: fmt.Sprint("pod-", i), namespace: "shop", recordable: true}
			s.bear(l, wish{role: fmt.Sprint("sim-", i/2)}, 0) // two share one
			s.give(l)
			lives[i] = l
		}
		const cycle = 57 * time.Minute
		for i := range time.Duration(3) {
			s.sts.suffer(fault{trouble: down}, s.started.Add(i*cycle+10*time.Minute), 23*time.Minute)
			s.sts.suffer(fault{trouble: hang}, s.started.Add(i*cycle+33*time.Minute), 21*time.Minute)
		}
		asked := 0
		for time.Since(s.started) < 3*time.Hour {
			for i, l := range lives {
				s.ask(t.Context(), l, way(i))
				asked++
			}
			<-time.After(5 * time.Second)
		}
		s.requests.Wait()
		for _, l := range lives {
			s.remove(l, 0)
		}
		finish()
		if total.served != asked || total.granted != 8 {
			t.Errorf("%d of %d clients were given a session, and there were %d sessions, want two roles' first and one more in each of three pauses", total.served, asked, total.granted)
		}
		t.Logf("%v", &total)
	})
}

// As above, by the clock and over sockets, with sessions of a few seconds; of more, if this machine is too busy to see
// what it is about within one.
func TestNoRequestFailsWhileASessionLivesOverSockets(t *testing.T) {
	inWorld(t, func(ctx context.Context, w *world) {
		for lifetime := 6 * time.Second; !outlives(ctx, t, w, lifetime) && !t.Failed(); lifetime *= 2 {
			if lifetime > 20*time.Second {
				t.Fatal("no session lived for long enough")
			}
		}
	})
}

// outlives has STS fail and hang while a session of the given length is to be renewed. It reports whether the session
// lived to see it.
func outlives(ctx context.Context, t *testing.T, w *world, lifetime time.Duration) bool {
	t.Helper()
	p := w.pod(t, fmt.Sprint("web-", lifetime), fmt.Sprint("shop-", lifetime))
	arn := fmt.Sprint(demoBaseARN, "shop-", lifetime)
	w.sts.SetFaults(sts.Faults{Lifetime: lifetime})
	var first sts.Session
	var asked atomic.Int64
	ask := func() sts.Session {
		got, _ := p.credentials(ctx)
		session, err := sts.Decode(field(got.body, "Token"))
		alive := first == sts.Session{} || time.Until(time.Unix(first.Expires, 0)) > lifetime/60
		if (err != nil || session.RoleARN != arn) && alive {
			t.Errorf("request %d was answered %s", asked.Load(), got.outcome())
		}
		asked.Add(1)
		return session
	}
	call := func(n int) {
		if _, err := w.sts.Wait(ctx, n, func(c sts.Call) bool { return c.RoleARN == arn }); err != nil {
			t.Fatalf("waiting for call %d: %v", n, err)
		}
	}
	first = ask()
	w.sts.SetFaults(sts.Faults{Lifetime: lifetime, Outage: sts.Failing})
	var asking sync.WaitGroup
	defer asking.Wait()
	stop := make(chan struct{})
	defer close(stop)
	asking.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				ask()
			}
		}
	})
	call(3) // two renewals have failed
	w.sts.SetFaults(sts.Faults{Lifetime: lifetime, Outage: sts.Hanging})
	call(4)
	got := ask()
	lived := time.Until(time.Unix(first.Expires, 0)) > lifetime/60
	if lived && got.Serial != first.Serial {
		t.Errorf("session %d came from an STS that hangs", got.Serial)
	}
	w.sts.SetFaults(sts.Faults{Lifetime: time.Hour}) // what hangs is answered
	for renewed := false; !renewed && ctx.Err() == nil; {
		renewed = ask().Expires > time.Now().Add(lifetime).Unix()
	}
	t.Logf("%d requests, and the session of %v lived through it: %v", asked.Load(), lifetime, lived)
	return lived
}

// TestAnOutageOfTheAPIServerIsNotNoticedByPodsThatAreKnown takes the API server away for POD2ROLE_OUTAGE, by default
// for as long as it takes the watches to notice, and lets it come back without its history.
func TestAnOutageOfTheAPIServerIsNotNoticedByPodsThatAreKnown(t *testing.T) {
	least := time.Duration(0)
	if text, ok := os.LookupEnv("POD2ROLE_OUTAGE"); ok {
		var err error
		if least, err = time.ParseDuration(text); err != nil {
			t.Fatal("POD2ROLE_OUTAGE:", err)
		}
	}
	for _, tt := range []struct {
		name string
		args []string
	}{{"with records", nil}, {"by the API server alone", []string{"--cni-results-dir="}}} {
		t.Run(tt.name, func(t *testing.T) {
			inWorld(t, func(ctx context.Context, w *world) { outageOf(ctx, t, w, least, tt.args == nil) }, append(tt.args, "--hold=10s")...)
		})
	}
}

func outageOf(ctx context.Context, t *testing.T, w *world, least time.Duration, recorded bool) {
	known := []demoPod{w.pod(t, "web", "shop-web"), w.pod(t, "job", "shop-job")}
	dead := w.pod(t, "dead", "shop-dead")
	for _, p := range append(known, dead) {
		if got, session := p.credentials(ctx); session.RoleARN != p.arn() {
			t.Fatalf("before: %s got %s", p, got.outcome())
		}
	}

	w.api.SetOutage(kubeapi.Refuse)
	gone := time.Now()
	var steady, fresh sync.WaitGroup
	over := make(chan struct{})
	var asked [2]atomic.Int64
	for i, p := range known {
		steady.Go(func() {
			for {
				select {
				case <-over:
					return
				default:
				}
				if got, session := p.credentials(ctx); session.RoleARN != p.arn() {
					t.Errorf("%v after the API server went away, %s got %s", time.Since(gone), p, got.outcome())
				}
				asked[i].Add(1)
			}
		})
	}

	// What happens meanwhile is written to the API server all the same: it is the node that cannot reach it.
	next, err := w.schedule("shop", "next", "shop-next")
	if err != nil {
		t.Fatal(err)
	}
	late, err := w.schedule("late", "late", "late-role")
	if err != nil {
		t.Fatal(err)
	}
	if err := w.namespace("late", `["late-*"]`); err != nil {
		t.Fatal(err)
	}
	if recorded { // the address of the dead is used again, which nothing but the record can tell
		if err := w.records.Remove(dead.attachment()); err != nil {
			t.Fatal(err)
		}
		if err := w.api.RemovePod(dead.namespace, dead.name); err != nil {
			t.Fatal(err)
		}
		next.addr = dead.addr
	}
	for _, p := range []demoPod{next, late} {
		if err := p.run(); err != nil {
			t.Fatal(err)
		}
		fresh.Go(func() {
			for ctx.Err() == nil {
				got, session := p.credentials(ctx)
				if session.RoleARN == p.arn() {
					t.Logf("the new pod %s was served %v after the API server went away", p, time.Since(gone).Round(time.Millisecond))
					return
				}
				// 401: the token was given before the record was read, and is of no use to another pod; SDKs fetch a new one.
				if got.code == http.StatusOK || got.err == nil && got.code != http.StatusServiceUnavailable && got.code != http.StatusUnauthorized {
					t.Errorf("%v after the API server went away, the new pod %s got %s %s", time.Since(gone), p, got.outcome(), session.RoleARN)
					return
				}
			}
		})
	}
	for { // requests are the clock
		status, noticed := w.daemon.cluster.Status(), true
		for _, s := range status {
			noticed = noticed && !s.Connected && s.Errors > 1
		}
		if noticed && min(asked[0].Load(), asked[1].Load()) > 10 && time.Since(gone) > least || ctx.Err() != nil {
			break
		}
		known[0].credentials(ctx)
	}
	w.api.Compact()
	w.api.SetOutage(kubeapi.Up)
	back := time.Now()
	fresh.Wait()
	t.Logf("an outage of %v, known pods were served %d and %d times without a fault", back.Sub(gone).Round(time.Millisecond), asked[0].Load(), asked[1].Load())
	if err := w.api.WaitFor(ctx, 1, func(r kubeapi.Request) bool { return r.Time.After(back) && kubeapi.Watching("pods")(r) }); err != nil {
		t.Errorf("waiting for the watch: %v", err)
	}
	close(over)
	steady.Wait()
}

// arn is the role that the pod asks for: in these tests, its namespace and name.
func (p demoPod) arn() string {
	if p.namespace == "late" {
		return demoBaseARN + "late-role"
	}
	return demoBaseARN + p.namespace + "-" + p.name
}
