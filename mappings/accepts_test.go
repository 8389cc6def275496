package mappings

import (
	"strings"
	"testing"
)

func TestTheRoleRouteAcceptsEverySpellingOfTheOwnRole(t *testing.T) {
	const foreign = "arn:aws:iam::222222222222:role/x/y"
	for _, tt := range []struct {
		name, base, role string
		accepted         []string
		refused          []string
	}{
		{
			"a name", base, "reader",
			[]string{"reader", "/reader", "reader/", base + "reader", base + "reader/"},
			[]string{"", "/", "reade", "Reader", "reader//", "//reader", "team/reader", "readerx", "/" + base + "reader", "arn:x", foreign, "reader\x00"},
		},
		{
			"a path and name", base, "/team/reader",
			[]string{"team/reader", "/team/reader", "team/reader/", base + "team/reader"},
			[]string{"reader", "/reader", "team", "team//reader"},
		},
		{
			"a name under a base ARN with a path", base + "team/", "reader",
			[]string{"reader", "/reader", base + "team/reader"},
			[]string{"team/reader", "/team/reader", base + "reader"},
		},
		{
			"an ARN under the base ARN", base, base + "reader",
			[]string{"reader", base + "reader"},
			[]string{"writer"},
		},
		{
			"an ARN elsewhere", base, foreign,
			[]string{foreign, foreign + "/"},
			[]string{"y", "x/y", "/x/y", "/" + foreign, base + "x/y"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := newDecider(t, Rules{BaseARN: tt.base}).Decide(pod(map[string]string{DefaultKeys().Role: tt.role}), &Namespace{Name: "shop"})
			for _, requested := range tt.accepted {
				if !d.Accepts(requested) {
					t.Errorf("%q is refused", requested)
				}
			}
			for _, requested := range tt.refused {
				if d.Accepts(requested) {
					t.Errorf("%q is accepted", requested)
				}
			}
			if !d.Accepts(d.Listing) {
				t.Errorf("%q, which is listed, is refused", d.Listing)
			}
			if allocs := testing.AllocsPerRun(10, func() { d.Accepts(tt.accepted[1]) }); allocs != 0 {
				t.Errorf("accepting allocates %v times", allocs)
			}
		})
	}
	for v := Undecided; v <= Busy; v++ {
		if d := (&Decision{Verdict: v, Listing: "reader", Session: Session{RoleARN: base + "reader"}}); d.Accepts("reader") != (v == Allowed) {
			t.Errorf("a %v decision accepts a role: %v", v, d.Accepts("reader"))
		}
	}
}

// What is accepted is what ParseRole reads as the pod's own role, and nothing else.
func FuzzAccepts(f *testing.F) {
	for _, seed := range []string{"reader", "/reader/", "team/reader", base + "team/reader", "//team/reader", "arn:x", "team/../reader"} {
		f.Add(seed, "reader", "")
		f.Add(seed, "/team/reader", "team")
	}
	f.Fuzz(func(t *testing.T, requested, role, path string) {
		base := base + path
		arn, err := ParseRole(role, base)
		if err != nil {
			return
		}
		d := newDecider(t, Rules{BaseARN: base}).Decide(pod(map[string]string{DefaultKeys().Role: role}), &Namespace{Name: "shop"})
		named, err := ParseRole(strings.TrimSuffix(requested, "/"), base)
		if got, want := d.Accepts(requested), err == nil && named == arn; got != want {
			t.Errorf("a pod with the role %q under %q asks for %q: accepted %v, want %v", role, base, requested, got, want)
		}
	})
}
