package cluster_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"pod2role/sandbox/kubeapi"
)

func TestWhatWasKnownStaysWhileTheServerIsAwayAndIsPutRightAfter(t *testing.T) {
	for name, cfg := range forms() {
		for outage, how := range map[string]kubeapi.Outage{"refuse": kubeapi.Refuse, "reset": kubeapi.Reset, "unavailable": kubeapi.Unavailable} {
			t.Run(name+"/"+outage, func(t *testing.T) {
				r := synced(t, cfg)
				r.pod("stays", "10.0.0.1")
				r.pod("goes", "10.0.0.2")
				r.untilAt("10.0.0.2", "goes")
				r.server.SetOutage(how)
				if _, err := r.ReadPod(r.patience(), "shop", "stays"); err == nil || !strings.Contains(err.Error(), `reading pod "stays"`) {
					t.Errorf("direct read: %v", err)
				}
				if r.at("10.0.0.1") != "stays" || r.Namespace("shop") == nil || !r.Synced() {
					t.Error("what was known has been forgotten")
				}
				r.must(r.server.RemovePod("shop", "goes"))
				r.pod("comes", "10.0.0.2")
				r.server.Compact()
				r.server.SetOutage(kubeapi.Up)
				r.untilAt("10.0.0.2", "comes")
				if r.at("10.0.0.1") != "stays" || r.Pod("goes") != nil {
					t.Error("not put right")
				}
			})
		}
	}
}

func TestWatchesThatAreCutGoOn(t *testing.T) {
	r := synced(t, kubeapi.Config{})
	for range 3 {
		r.must(r.server.WaitFor(r.patience(), 1, kubeapi.Watching("pods")))
		r.server.DropWatches()
		r.fence()
	}
	if s := r.Status()[0]; s.Resource != "pods" || s.Watches < 2 || s.Objects != 3 || !s.Synced || s.LastEvent.IsZero() {
		t.Errorf("status %+v", s)
	}
}

func TestWhatIsMissingForSyncIsSaidWithItsCause(t *testing.T) {
	r := start(t, kubeapi.Config{}, func(s *kubeapi.Server) { s.Deny("*", "namespaces") })
	r.must(r.server.WaitFor(r.patience(), 2, func(q kubeapi.Request) bool { return q.Resource == "namespaces" && q.Code == 403 }))
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	err := r.WaitForSync(ctx)
	if err == nil || !strings.Contains(err.Error(), "waiting for the namespaces: context deadline exceeded; the last attempt ended with: namespaces is forbidden") {
		t.Errorf("got %v", err)
	}
	if r.Synced() {
		t.Error("synced without the namespaces")
	}
}

func TestRunEndsAtOnceAlsoWhileTheServerIsAway(t *testing.T) {
	for name, cfg := range forms() {
		t.Run(name, func(t *testing.T) {
			r := synced(t, cfg)
			r.server.SetOutage(kubeapi.Refuse)
			for r.Status()[0].Errors < 4 { // until the pauses have grown
				select {
				case <-time.After(10 * time.Millisecond):
				case <-t.Context().Done():
				}
			}
			began := time.Now()
			r.stop()
			if took := time.Since(began); took > time.Second {
				t.Errorf("took %v", took)
			}
		})
	}
}
