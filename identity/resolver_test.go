package identity

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"pod2role/mappings"
)

func TestARecordBindsAnAddressBeforeTheAPIServerHasReportedIt(t *testing.T) {
	pod := newPod("web")
	records := &fakeRecords{}
	records.put(addr1, pod)
	r := newResolver(t, Config{Records: records, View: newView(pod)})

	got := r.Resolve(t.Context(), addr1, 0)
	check(t, got, mappings.Allowed, pod)
	want := []mappings.Step{
		{Looked: "the CNI's record for 10.0.0.1", Found: "pod shop/web (uid-web)"},
		{Looked: "the kernel", Found: "attestation is not available"},
		{Looked: "the pod's annotation iam.amazonaws.com/role", Found: `"web"`},
	}
	if diff := cmp.Diff(want, got.Trail[:3]); diff != "" {
		t.Errorf("the trail's beginning (-want +got):\n%s", diff)
	}
}

func TestARecordOutweighsTheView(t *testing.T) {
	old, young := newPod("old", addr1), newPod("young")
	records := &fakeRecords{}
	records.put(addr1, young)
	r := newResolver(t, Config{Records: records, View: newView(old, young)})
	check(t, r.Resolve(t.Context(), addr1, 0), mappings.Allowed, young)
}

func TestARecordWhosePodIsNotKnownYetHidesTheViewsPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		records := &fakeRecords{}
		records.put(addr1, newPod("young"))
		r := newResolver(t, Config{Records: records, View: newView(newPod("old", addr1))})
		check(t, r.Resolve(t.Context(), addr1, 0), mappings.Pending, nil)
		clean(t, r)
	})
}

func TestAnAddressIsTheSameInEverySpelling(t *testing.T) {
	pod6 := newPod("six", netip.MustParseAddr("fe80::1"))
	pod4 := newPod("four", addr1)
	r := newResolver(t, Config{View: newView(pod4, pod6)})
	check(t, r.Resolve(t.Context(), netip.MustParseAddr("::ffff:10.0.0.1"), 0), mappings.Allowed, pod4)
	check(t, r.Resolve(t.Context(), netip.MustParseAddr("fe80::1%eth0"), 0), mappings.Allowed, pod6)
}

func TestAKnownPodIsAnsweredAtOnceWhateverTheVerdict(t *testing.T) {
	keys := mappings.DefaultKeys()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		for _, tt := range []struct {
			role string
			want mappings.Verdict
		}{{"web", mappings.Allowed}, {"", mappings.NoRole}, {"arn:x", mappings.Malformed}} {
			pod := newPod("web", addr1)
			pod.Annotations = map[string]string{keys.Role: tt.role}
			check(t, newResolver(t, Config{View: newView(pod)}).Resolve(t.Context(), addr1, 0), tt.want, nil)
		}
		if time.Since(start) != 0 {
			t.Errorf("it took %v", time.Since(start))
		}
	})
}

func TestWhatIsNotAPodIsToldAtOnce(t *testing.T) {
	host := newPod("host", addr1)
	host.HostNetwork = true
	view := newView()
	view.readAddr = func(context.Context, netip.Addr) ([]*mappings.Pod, error) { return []*mappings.Pod{host}, nil }
	for _, tt := range []struct {
		name   string
		config Config
		addr   netip.Addr
	}{
		{"no address", Config{View: newView()}, netip.Addr{}},
		{"the node's own, even if a pod claims it", Config{View: newView(newPod("web", addr1)), IsNodeAddr: func(a netip.Addr) bool { return a == addr1 }}, addr1},
		{"another container's", Config{View: newView(), IsForeign: func(a netip.Addr) bool { return a == addr1 }}, addr1},
		{"a hostNetwork pod's", Config{View: view}, addr1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				r := newResolver(t, tt.config)
				check(t, r.Resolve(t.Context(), tt.addr, 0), mappings.NotAPod, nil)
				if time.Since(start) != 0 {
					t.Errorf("it took %v", time.Since(start))
				}
				clean(t, r)
			})
		})
	}
}

func TestAnAddressThatIsNoLongerKnownHasNobodysRole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pod := newPod("web", addr1)
		records := &fakeRecords{}
		view := newView(pod)
		r := newResolver(t, Config{Records: records, View: view})
		check(t, r.Resolve(t.Context(), addr1, 0), mappings.Allowed, pod)

		view.remove(pod.UID)
		start := time.Now()
		check(t, r.Resolve(t.Context(), addr1, 0), mappings.Pending, nil)
		if waited := time.Since(start); waited != 5*time.Second {
			t.Errorf("it was held for %v, want 5s", waited)
		}
		clean(t, r)
	})
}

func TestAFinishedPodHasNoAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pod := newPod("job", addr1)
		pod.Finished = true
		records := &fakeRecords{}
		records.put(addr1, pod)
		check(t, newResolver(t, Config{Records: records, View: newView(pod)}).Resolve(t.Context(), addr1, 0), mappings.Pending, nil)
	})
}

func TestNothingIsJudgedBeforeTheSourcesHaveBeenRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ready := false
		pod := newPod("web", addr1)
		r := newResolver(t, Config{View: newView(pod), Ready: func() bool { return ready }})
		check(t, r.Resolve(t.Context(), addr1, 0), mappings.Pending, nil)
		ready = true
		check(t, r.Resolve(t.Context(), addr1, 0), mappings.Allowed, pod)

		// One pod with the address may be one of two, while not all have been seen.
		view := newView(pod)
		view.unsynced = true
		r = newResolver(t, Config{View: view})
		check(t, r.Resolve(t.Context(), addr1, 0), mappings.Pending, nil)
		view.readAddr = func(context.Context, netip.Addr) ([]*mappings.Pod, error) { return []*mappings.Pod{pod}, nil }
		check(t, r.Resolve(t.Context(), addr1, 0), mappings.Allowed, pod)

		// The answer may well move the view.
		empty := newView()
		empty.unsynced = true
		empty.readAddr = func(context.Context, netip.Addr) ([]*mappings.Pod, error) {
			empty.put(pod)
			return []*mappings.Pod{pod}, nil
		}
		start := time.Now()
		check(t, newResolver(t, Config{View: empty}).Resolve(t.Context(), addr1, 0), mappings.Allowed, pod)
		if time.Since(start) != 0 {
			t.Errorf("it took %v", time.Since(start))
		}

		// A record needs no list of all pods.
		records := &fakeRecords{}
		records.put(addr1, pod)
		check(t, newResolver(t, Config{Records: records, View: view}).Resolve(t.Context(), addr1, 0), mappings.Allowed, pod)
	})
}

func TestKnownPodsKeepWorkingWhileTheAPIServerIsAway(t *testing.T) {
	recorded, reported := newPod("recorded"), newPod("reported", addr2)
	records := &fakeRecords{}
	records.put(addr1, recorded)
	view := newView(recorded, reported)
	away := errors.New("connection refused")
	view.readPod = func(context.Context, string, string) (*mappings.Pod, error) { return nil, away }
	view.readAddr = func(context.Context, netip.Addr) ([]*mappings.Pod, error) { return nil, away }
	r := newResolver(t, Config{Records: records, View: view})
	check(t, r.Resolve(t.Context(), addr1, 0), mappings.Allowed, recorded)
	check(t, r.Resolve(t.Context(), addr2, 0), mappings.Allowed, reported)
	if view.reads() != 0 {
		t.Errorf("the API server was asked %d times", view.reads())
	}
}

func TestTwoPodsWithOneAddressAreNeverGuessed(t *testing.T) {
	dying, young := newPod("dying", addr1), newPod("young", addr1)
	dying.Deleting = true
	for _, pods := range [][]*mappings.Pod{{dying, young}, {young, dying}} {
		synctest.Test(t, func(t *testing.T) {
			view := newView(pods...)
			view.readAddr = func(_ context.Context, addr netip.Addr) ([]*mappings.Pod, error) { return view.PodsAt(addr), nil }
			r := newResolver(t, Config{View: view})
			got := r.Resolve(t.Context(), addr1, 0)
			check(t, got, mappings.Ambiguous, nil)
			if want := "2 live pods have the address 10.0.0.1: shop/dying, shop/young; whose request this is cannot be told until one of them is gone; waited 5s for it"; got.Reason != want {
				t.Errorf("reason %q, want %q", got.Reason, want)
			}
			clean(t, r)
		})
	}
}

func TestTwoPodsWithOneAddressAreToldApart(t *testing.T) {
	old, young := newPod("old", addr1), newPod("young", addr1)
	t.Run("by the API server", func(t *testing.T) {
		view := newView(old, young)
		view.readAddr = func(context.Context, netip.Addr) ([]*mappings.Pod, error) { return []*mappings.Pod{young}, nil }
		check(t, newResolver(t, Config{View: view}).Resolve(t.Context(), addr1, 0), mappings.Allowed, young)
	})
	t.Run("by the kernel", func(t *testing.T) {
		old.SandboxReady, young.SandboxReady = time.Unix(10, 0), time.Unix(20, 0)
		r := newResolver(t, Config{View: newView(young, old), Attest: func(c Claim) (Attestation, string) {
			if c.Ready.Before(time.Unix(15, 0)) {
				return Refuted, "too old"
			}
			return Confirmed, "fine"
		}})
		check(t, r.Resolve(t.Context(), addr1, 0), mappings.Allowed, young)
	})
	t.Run("by the end of one", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			view := newView(old, young)
			r := newResolver(t, Config{View: view})
			time.AfterFunc(time.Second, func() { view.remove(old.UID); r.Wake() })
			check(t, r.Resolve(t.Context(), addr1, 0), mappings.Allowed, young)
		})
	})
}

func TestAClaimThatTheKernelRefutesDoesNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refuted := map[string]bool{"uid-old": true}
		var claims []Claim
		attest := func(c Claim) (Attestation, string) {
			claims = append(claims, c)
			if c.Ready.Equal(time.Unix(10, 0)) || refuted[c.Interface] {
				return Refuted, "the address is behind veth-other"
			}
			return Unavailable, "nothing to compare"
		}

		old, young := newPod("old", addr1), newPod("young", addr1)
		old.SandboxReady, young.SandboxReady = time.Unix(10, 0), time.Unix(20, 0)
		view := newView(old)
		r := newResolver(t, Config{View: view, Attest: attest})
		check(t, r.Resolve(t.Context(), addr1, 7), mappings.Pending, nil)
		if want := (Claim{Addr: addr1, Ingress: 7, Ready: time.Unix(10, 0)}); claims[0] != want {
			t.Errorf("claim %v, want %v", claims[0], want)
		}
		view.readAddr = func(context.Context, netip.Addr) ([]*mappings.Pod, error) { return []*mappings.Pod{old}, nil }
		check(t, r.Resolve(t.Context(), addr1, 7), mappings.Pending, nil) // a direct read can be stale too
		view.readAddr = func(context.Context, netip.Addr) ([]*mappings.Pod, error) { return []*mappings.Pod{young}, nil }
		check(t, r.Resolve(t.Context(), addr1, 7), mappings.Allowed, young)

		records := &fakeRecords{}
		records.put(addr2, young)
		claims, refuted["veth-uid-young"] = nil, true
		r = newResolver(t, Config{Records: records, View: newView(young), Attest: attest})
		got := r.Resolve(t.Context(), addr2, 7)
		check(t, got, mappings.Pending, nil)
		if want := (Claim{Addr: addr2, Ingress: 7, Interface: "veth-uid-young", Recorded: true}); claims[0] != want {
			t.Errorf("claim %v, want %v", claims[0], want)
		}
		clean(t, r)
	})
}

func TestAnAddressThatTheCNIHasTakenBackIsNoLongerThePodsByTheAPIServer(t *testing.T) {
	taken := time.Unix(100, int64(500*time.Millisecond))
	ready := func(name string, at int64) *mappings.Pod {
		pod := newPod(name, addr1)
		if at != 0 {
			pod.SandboxReady = time.Unix(at, 0)
		}
		return pod
	}
	for _, tt := range []struct {
		name    string
		claims  []*mappings.Pod
		verdict mappings.Verdict
		reason  string
	}{
		{"of the pod that had it", []*mappings.Pod{ready("had", 90)}, mappings.Pending, "not by the CNI's records: the address was taken back from the pod at 1970-01-01T00:01:40Z"},
		{"even with a younger sandbox", []*mappings.Pod{ready("had", 200)}, mappings.Pending, "taken back from the pod"},
		{"of one that had it earlier", []*mappings.Pod{ready("earlier", 90)}, mappings.Pending, "the address was another pod's until 1970-01-01T00:01:40Z"},
		{"of one that got it in the same second", []*mappings.Pod{ready("who", 100)}, mappings.Pending, "another pod's until"},
		{"of one of which the API server does not say when", []*mappings.Pod{ready("who", 0)}, mappings.Pending, "another pod's until"},
		{"of one that got it afterwards", []*mappings.Pod{ready("next", 101)}, mappings.Allowed, ""},
		{"of that and the old one", []*mappings.Pod{ready("had", 90), ready("next", 101)}, mappings.Allowed, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				records, view := &fakeRecords{}, newView(tt.claims...)
				view.readAddr = func(_ context.Context, addr netip.Addr) ([]*mappings.Pod, error) { return view.PodsAt(addr), nil }
				records.put(addr1, newPod("had"))
				records.takeBack(addr1, taken)
				r := newResolver(t, Config{Records: records, View: view, Attest: func(Claim) (Attestation, string) { return Confirmed, "fine" }})
				got := r.Resolve(t.Context(), addr1, 0)
				var pod *mappings.Pod
				if tt.verdict == mappings.Allowed {
					pod = tt.claims[len(tt.claims)-1]
				}
				check(t, got, tt.verdict, pod)
				if !strings.Contains(got.Reason, tt.reason) {
					t.Errorf("reason %q, want %q in it", got.Reason, tt.reason)
				}
				clean(t, r)
			})
		})
	}
}

func TestAnAnswerFollowsWhatItRestsOn(t *testing.T) {
	pod := newPod("web", addr1)
	view := newView(pod)
	r := newResolver(t, Config{View: view})
	first := r.Resolve(t.Context(), addr1, 0)
	if again := r.Resolve(t.Context(), addr1, 0); again != first {
		t.Error("nothing changed, and there is another decision")
	}
	edited := *pod
	edited.Name = "web"
	edited.Annotations = map[string]string{mappings.DefaultKeys().Role: "writer"}
	view.put(&edited)
	if got := r.Resolve(t.Context(), addr1, 0); got.Session.RoleARN != base+"writer" {
		t.Errorf("after an edit the role is %q", got.Session.RoleARN)
	}
	next := newPod("next", addr1)
	view.remove(pod.UID)
	view.put(next)
	check(t, r.Resolve(t.Context(), addr1, 0), mappings.Allowed, next)
}

func TestResolvingWhatIsKnownAllocatesNothing(t *testing.T) {
	recorded, reported := newPod("recorded"), newPod("reported", addr2)
	records := &fakeRecords{}
	records.put(addr1, recorded)
	r := newResolver(t, Config{
		Records: records, View: newView(recorded, reported), Registerer: prometheus.NewRegistry(),
		Attest:     func(Claim) (Attestation, string) { return Confirmed, "fine" },
		IsNodeAddr: func(netip.Addr) bool { return false }, Ready: func() bool { return true },
	})
	ctx := t.Context()
	for _, addr := range []netip.Addr{addr1, addr2} {
		check(t, r.Resolve(ctx, addr, 3), mappings.Allowed, nil)
		if allocs := testing.AllocsPerRun(100, func() { r.Resolve(ctx, addr, 3) }); allocs != 0 {
			t.Errorf("resolving %v allocates %v times", addr, allocs)
		}
	}
}

func BenchmarkResolve(b *testing.B) {
	pod := newPod("web")
	records := &fakeRecords{}
	records.put(addr1, pod)
	r := newResolver(b, Config{Records: records, View: newView(pod)})
	ctx := b.Context()
	b.ReportAllocs()
	for b.Loop() {
		r.Resolve(ctx, addr1, 0)
	}
}

func TestNewNeedsItsSources(t *testing.T) {
	if _, err := New(Config{}); err == nil {
		t.Error("New needs no view")
	}
	if _, err := New(Config{View: newView()}); err == nil {
		t.Error("New needs no decider")
	}
}
