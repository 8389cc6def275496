package mappings

import (
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func newDecider(t testing.TB, rules Rules) *Decider {
	t.Helper()
	rules.Keys = DefaultKeys()
	if rules.BaseARN == "" && !rules.AwaitBaseARN {
		rules.BaseARN = base
	}
	if rules.Node == "" {
		rules.Node = "node-1"
	}
	d, err := NewDecider(rules)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func pod(annotations map[string]string) *Pod {
	return &Pod{UID: "uid-1", Namespace: "shop", Name: "web", ServiceAccount: "default", Node: "node-1", Annotations: annotations}
}

func TestWhereTheRoleComesFrom(t *testing.T) {
	keys := DefaultKeys()
	restricted := Rules{NamespaceRestrictions: true, DefaultRole: "fallback"}
	for _, tt := range []struct {
		name    string
		rules   Rules
		pod, ns map[string]string
		verdict Verdict
		arn     string
		reason  string // a part of it
	}{
		{"the pod's annotation comes first", Rules{DefaultRole: "fallback"}, map[string]string{keys.Role: "reader"}, map[string]string{keys.DefaultRole: "usual"}, Allowed, base + "reader", "its annotation"},
		{"then the namespace's default", Rules{DefaultRole: "fallback"}, nil, map[string]string{keys.DefaultRole: "usual"}, Allowed, base + "usual", "its namespace's default"},
		{"then the operator's", Rules{DefaultRole: "fallback"}, nil, nil, Allowed, base + "fallback", "the operator's default"},
		{"and then there is none", Rules{}, nil, nil, NoRole, "", "annotate the pod with " + keys.Role},
		{"an empty annotation asks for no role", Rules{DefaultRole: "fallback"}, map[string]string{keys.Role: ""}, map[string]string{keys.DefaultRole: "usual"}, NoRole, "", "asks for no role"},
		{"so does one of white space", Rules{DefaultRole: "fallback"}, map[string]string{keys.Role: " \n"}, nil, NoRole, "", "asks for no role"},
		{"an empty default of the namespace gives none", Rules{DefaultRole: "fallback"}, nil, map[string]string{keys.DefaultRole: ""}, NoRole, "", keys.DefaultRole},
		{"a malformed annotation does not fall back", Rules{DefaultRole: "fallback"}, map[string]string{keys.Role: "arn:x"}, nil, Malformed, "", "fewer than six parts"},
		{"a malformed default of the namespace does not fall back", Rules{DefaultRole: "fallback"}, nil, map[string]string{keys.DefaultRole: "a b"}, Malformed, "", "its namespace's default"},

		{"the operator's default is not restricted", restricted, nil, nil, Allowed, base + "fallback", ""},
		{"but a pod that names it itself is", restricted, map[string]string{keys.Role: "fallback"}, nil, Forbidden, "", keys.AllowedRoles},
		{"so is a namespace's default of the same name", restricted, nil, map[string]string{keys.DefaultRole: "fallback"}, Forbidden, "", keys.AllowedRoles},
		{"a namespace's default is restricted", restricted, nil, map[string]string{keys.DefaultRole: "usual", keys.AllowedRoles: `["reader"]`}, Forbidden, "", keys.AllowedRoles},
		{"and may be allowed", restricted, nil, map[string]string{keys.DefaultRole: "usual", keys.AllowedRoles: `["usual"]`}, Allowed, base + "usual", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := newDecider(t, tt.rules).Decide(pod(tt.pod), &Namespace{Name: "shop", Annotations: tt.ns})
			if got.Verdict != tt.verdict || got.Session.RoleARN != tt.arn || !strings.Contains(got.Reason, tt.reason) {
				t.Errorf("%v %q because %s; want %v %q because of %q", got.Verdict, got.Session.RoleARN, got.Reason, tt.verdict, tt.arn, tt.reason)
			}
			if len(got.Trail) == 0 {
				t.Error("the trail is empty")
			}
		})
	}
}

func TestANamespaceNotSeenYetAllowsNothing(t *testing.T) {
	for _, restrictions := range []bool{true, false} {
		d := newDecider(t, Rules{NamespaceRestrictions: restrictions, DefaultRole: "fallback"})
		for _, annotations := range []map[string]string{nil, {DefaultKeys().Role: "reader"}} {
			if got := d.Decide(pod(annotations), nil); got.Verdict != Pending || got.Session != (Session{}) {
				t.Errorf("restrictions %v, annotations %v: %v with session %v, want pending", restrictions, annotations, got.Verdict, got.Session)
			}
		}
	}
	if got := newDecider(t, Rules{}).Decide(nil, nil); got.Verdict != Pending {
		t.Errorf("no pod: %v, want pending", got.Verdict)
	}
}

func TestAPodOfTheNodesNetworkIsNone(t *testing.T) {
	p := pod(map[string]string{DefaultKeys().Role: "reader"})
	p.HostNetwork = true
	if got := newDecider(t, Rules{}).Decide(p, &Namespace{Name: "shop"}); got.Verdict != NotAPod || got.Session != (Session{}) {
		t.Errorf("%v with session %v, want not-a-pod", got.Verdict, got.Session)
	}
}

func TestTheTrailSaysWhatWasLookedAt(t *testing.T) {
	keys := DefaultKeys()
	d := newDecider(t, Rules{NamespaceRestrictions: true})
	got := d.Decide(
		pod(map[string]string{keys.Role: "reader\n", keys.ExternalID: "hush-hush"}),
		&Namespace{Name: "shop", Annotations: map[string]string{keys.AllowedRoles: `["x","re*"]`, keys.Permitted: ".*"}},
	)
	want := &Decision{
		Verdict: Allowed, Pod: got.Pod, Listing: "reader",
		Session: Session{RoleARN: base + "reader", Name: "pod2role-node-1", ExternalID: "hush-hush"},
		Reason:  "pod shop/web may use " + base + "reader, which its annotation names: its namespace allows it",
		Trail: []Step{
			{"the pod's annotation " + keys.Role, `"reader", after trimming the white space around it`},
			{`the role "reader"`, base + "reader"},
			{"the namespace's annotation " + keys.AllowedRoles, `"[\"x\",\"re*\"]", whose element 2 allows it`},
			{"the namespace's annotation " + keys.Permitted, `".*", whose element 1 allows it`},
			{"the pod's annotation " + keys.ExternalID, "set"},
			{"the session name", "pod2role-node-1, from the template"},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("decision (-want +got):\n%s", diff)
	}
}

func TestTheBaseARNMayComeLater(t *testing.T) {
	keys := DefaultKeys()
	d := newDecider(t, Rules{AwaitBaseARN: true, NamespaceRestrictions: true})
	ns := &Namespace{Name: "shop", Annotations: map[string]string{keys.AllowedRoles: `["reader"]`}}
	short, full, bad := pod(map[string]string{keys.Role: "reader"}), pod(map[string]string{keys.Role: base + "reader"}), pod(map[string]string{keys.Role: "a b"})
	full.UID, bad.UID = "uid-2", "uid-3"

	if got := d.Decide(short, ns); got.Verdict != Pending {
		t.Errorf("a short name: %v, want pending: %s", got.Verdict, got.Reason)
	}
	if got := d.Decide(full, ns); got.Verdict != Pending {
		t.Errorf("an ARN, and a pattern that is a short name: %v, want pending: %s", got.Verdict, got.Reason)
	}
	if got := d.Decide(bad, ns); got.Verdict != Malformed {
		t.Errorf("a short name that never will be one: %v, want malformed", got.Verdict)
	}
	if err := d.SetBaseARN("arn:x"); err == nil {
		t.Error("SetBaseARN takes a malformed ARN")
	}
	if err := d.SetBaseARN(strings.TrimSuffix(base, "/")); err != nil {
		t.Fatal(err)
	}
	for _, p := range []*Pod{short, full} {
		if got := d.Decide(p, ns); got.Verdict != Allowed || got.Session.RoleARN != base+"reader" || got.Listing != "reader" {
			t.Errorf("afterwards: %v %q listed as %q", got.Verdict, got.Session.RoleARN, got.Listing)
		}
	}

	never, err := NewDecider(Rules{Keys: keys})
	if err != nil {
		t.Fatal(err)
	}
	if got := never.Decide(short, ns); got.Verdict != Malformed || !strings.Contains(got.Reason, "no base ARN is set") {
		t.Errorf("a short name where no base ARN will be known: %v: %s", got.Verdict, got.Reason)
	}
	if got := never.Decide(full, ns); got.Verdict != Allowed || got.Listing != base+"reader" {
		t.Errorf("an ARN where no base ARN will be known: %v, listed as %q", got.Verdict, got.Listing)
	}
}

func TestADecisionIsMadeOncePerPodAndNamespace(t *testing.T) {
	keys := DefaultKeys()
	d := newDecider(t, Rules{NamespaceRestrictions: true})
	p := pod(map[string]string{keys.Role: "reader"})
	ns := &Namespace{Name: "shop", Annotations: map[string]string{keys.AllowedRoles: `["reader"]`}}
	first := d.Decide(p, ns)
	if allocs := testing.AllocsPerRun(100, func() { d.Decide(p, ns) }); allocs != 0 {
		t.Errorf("deciding anew allocates %v times", allocs)
	}
	if d.Decide(p, ns) != first {
		t.Error("the same pod and namespace have two decisions")
	}

	compiled := d.restrictions(ns)
	edited := *p
	edited.Annotations = map[string]string{keys.Role: "writer"}
	if got := d.Decide(&edited, ns); got.Verdict != Forbidden {
		t.Errorf("after the pod's annotation was edited: %v, want forbidden", got.Verdict)
	}
	if &d.restrictions(ns)[0] != &compiled[0] {
		t.Error("the patterns of an unchanged namespace were compiled anew")
	}
	if got := d.Decide(&edited, &Namespace{Name: "shop", Annotations: map[string]string{keys.AllowedRoles: `["writer"]`}}); got.Verdict != Allowed {
		t.Errorf("after the namespace's annotation was edited: %v, want allowed", got.Verdict)
	}

	d.Forget(p.UID)
	if len(d.decisions) != 0 {
		t.Error("a pod that is gone is remembered")
	}
	for range maxRemembered + 10 {
		d.Decide(&Pod{UID: strings.Repeat("x", len(d.decisions)+1)}, &Namespace{Name: strings.Repeat("x", len(d.namespaces)+1)})
	}
	if len(d.decisions) > maxRemembered || len(d.namespaces) > maxRemembered {
		t.Errorf("%d decisions and %d namespaces are remembered", len(d.decisions), len(d.namespaces))
	}
}

func TestDecidingIsSafeForConcurrentUse(t *testing.T) {
	keys := DefaultKeys()
	d := newDecider(t, Rules{AwaitBaseARN: true, NamespaceRestrictions: true})
	ns := &Namespace{Name: "shop", Annotations: map[string]string{keys.AllowedRoles: `["reader"]`}}
	p := pod(map[string]string{keys.Role: "reader"})
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for range 100 {
				switch i {
				case 0:
					if err := d.SetBaseARN(base); err != nil {
						t.Error(err)
					}
				case 1:
					d.Forget(p.UID)
				default:
					if got := d.Decide(p, ns); got.Verdict != Allowed && got.Verdict != Pending {
						t.Errorf("verdict %v", got.Verdict)
					}
				}
			}
		})
	}
	wg.Wait()
	if got := d.Decide(p, ns); got.Verdict != Allowed {
		t.Errorf("a decision without the base ARN has outlived it: %v", got.Verdict)
	}
}

func TestNewDeciderReportsAllProblems(t *testing.T) {
	_, err := NewDecider(Rules{
		Keys: Keys{Role: "a", ExternalID: "a", SessionName: "b", AllowedRoles: "c", Permitted: "d"}, BaseARN: "arn:x", Format: "regex",
		SessionNameTemplate: "{{.Pot}}", SessionTags: true, Cluster: "a;b",
	})
	for _, want := range []string{`"a" has two meanings`, "key is empty", `base ARN "arn:x"`, `"regex" is neither`, "Pot", "session tag cluster"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not say %q: %v", want, err)
		}
	}
	for _, tt := range []struct {
		name  string
		rules Rules
		ok    bool
	}{
		{"a default role that is short, without a base ARN", Rules{DefaultRole: "x"}, false},
		{"a default role that is short, with the base ARN to come", Rules{DefaultRole: "x", AwaitBaseARN: true}, true},
		{"a default role that never will be one", Rules{DefaultRole: "x y", AwaitBaseARN: true}, false},
		{"a default role that is an ARN", Rules{DefaultRole: base + "x"}, true},
		{"a default role with white space around it", Rules{DefaultRole: " x", BaseARN: base}, false},
	} {
		tt.rules.Keys = DefaultKeys()
		if _, err := NewDecider(tt.rules); (err == nil) != tt.ok {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}

func TestVerdictsHaveNames(t *testing.T) {
	var got []string
	for v := Undecided; v <= Busy+1; v++ {
		got = append(got, v.String())
	}
	want := []string{"undecided", "allowed", "no-role", "malformed", "forbidden", "pending", "ambiguous", "not-a-pod", "busy", "undecided"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
}
