package kubeapi_test

import (
	"net/http"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"pod2role/sandbox/kubeapi"
)

// forms are the servers and clients that differ on the wire but not in what informers see.
func forms() map[string]struct {
	server      kubeapi.Config
	contentType string
} {
	type form = struct {
		server      kubeapi.Config
		contentType string
	}
	return map[string]form{
		"streamed in the client's preferred media type": {},
		"streamed in JSON":                       {contentType: "application/json"},
		"streamed in protobuf":                   {contentType: "application/vnd.kubernetes.protobuf"},
		"listed by a server without watch lists": {server: kubeapi.Config{NoWatchList: true}},
		"listed in JSON":                         {server: kubeapi.Config{NoWatchList: true}, contentType: "application/json"},
		"behind a token":                         {server: kubeapi.Config{Token: "t"}},
	}
}

func TestInformersSeeWhatIsWritten(t *testing.T) {
	for name, form := range forms() {
		t.Run(name, func(t *testing.T) {
			server, cfg := start(t, form.server)
			cfg.ContentType = form.contentType
			check(t, server.StartPod("n1", newPod("early")))
			check(t, server.StartPod("n2", newPod("elsewhere")))
			check(t, server.Apply(newNamespace("shop", "a")))

			pods, namespaces := podsOf(t, cfg, "n1"), namespacesOf(t, cfg)
			pods.await("+early ")
			namespaces.await("+shop a")

			check(t, server.StartPod("n1", newPod("late")))
			pods.await("+late ")
			check(t, server.RunPod("shop", "late", addr(t, "10.0.0.7")))
			pods.await("~late 10.0.0.7")
			check(t, kubeapi.Update(server, "shop", "early", func(p *corev1.Pod) { p.Spec.NodeName = "n2" }))
			pods.await("-early ") // it left the selector
			check(t, server.RemovePod("shop", "late"))
			pods.await("-late 10.0.0.7")
			check(t, server.Apply(newNamespace("shop", "b")))
			namespaces.await("~shop b")

			lists := server.Count(kubeapi.Of("list", "pods"))
			if listed := lists > 0; listed != form.server.NoWatchList {
				t.Errorf("%d lists of pods; a server without watch lists: %v", lists, form.server.NoWatchList)
			}
		})
	}
}

func TestInformersRecover(t *testing.T) {
	for _, tt := range []struct {
		name  string
		fault func(t *testing.T, s *kubeapi.Server, write func())
		reads int // how often the informer then has read all pods: 1 if it goes on where it was; 0: either way
	}{
		{name: "from dropped watches", reads: 1, fault: func(_ *testing.T, s *kubeapi.Server, write func()) {
			s.DropWatches()
			write()
		}},
		{name: "from a history that is gone", reads: 2, fault: func(_ *testing.T, s *kubeapi.Server, write func()) {
			s.FreezeWatches()
			write()
			s.Compact()
			s.DropWatches()
			s.ThawWatches()
		}},
		{name: "from reset connections", fault: func(_ *testing.T, s *kubeapi.Server, write func()) {
			s.SetOutage(kubeapi.Reset)
			write()
			s.SetOutage(kubeapi.Up)
		}},
		{name: "from refused connections", fault: func(_ *testing.T, s *kubeapi.Server, write func()) {
			s.SetOutage(kubeapi.Refuse)
			write()
			s.SetOutage(kubeapi.Up)
		}},
		{name: "from 503", fault: func(t *testing.T, s *kubeapi.Server, write func()) {
			s.SetOutage(kubeapi.Unavailable)
			write()
			check(t, s.WaitFor(wait(t), 1, func(r kubeapi.Request) bool { return r.Code == http.StatusServiceUnavailable }))
			s.SetOutage(kubeapi.Up)
		}},
		{name: "from silence", reads: 1, fault: func(_ *testing.T, s *kubeapi.Server, write func()) {
			s.SetOutage(kubeapi.Hang)
			write()
			s.SetOutage(kubeapi.Up)
		}},
		{name: "from frozen watches", reads: 1, fault: func(_ *testing.T, s *kubeapi.Server, write func()) {
			s.FreezeWatches()
			write()
			s.ThawWatches()
		}},
	} {
		for kind, cfg := range map[string]kubeapi.Config{"streaming": {}, "listing": {NoWatchList: true}} {
			t.Run(tt.name+", "+kind, func(t *testing.T) {
				t.Parallel()
				server, restCfg := start(t, cfg)
				check(t, server.StartPod("n1", newPod("a")))
				check(t, server.StartPod("n1", newPod("b")))
				pods := podsOf(t, restCfg, "n1")
				check(t, server.WaitFor(wait(t), 1, kubeapi.Watching("pods")))
				check(t, server.StartPod("n1", newPod("z"))) // client-go reads again if a short watch told nothing
				pods.await("+z ")
				tt.fault(t, server, func() {
					check(t, server.RunPod("shop", "a", addr(t, "10.0.0.1")))
					check(t, server.RemovePod("shop", "b"))
				})
				pods.await("~a 10.0.0.1")
				check(t, server.StartPod("n1", newPod("c")))
				pods.await("+c ")
				reads := server.Count(func(r kubeapi.Request) bool {
					return r.Code == http.StatusOK && (r.Verb == "list" || r.SendInitialEvents)
				})
				if tt.reads != 0 && reads != tt.reads {
					t.Errorf("the informer read all pods %d times, want %d", reads, tt.reads)
				}
			})
		}
	}
}
