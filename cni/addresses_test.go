package cni

import (
	"net/netip"
	"testing"
	"time"
)

// at returns a claim of the pod on 10.0.0.1, written at the given second and seen in the given look.
func at(pod string, second int64, seen uint64) *claim {
	return &claim{
		addr: netip.MustParseAddr("10.0.0.1"), pod: pod, record: &Record{UID: pod},
		order: order{given: time.Unix(second, 0), seen: seen},
	}
}

func TestAnAddressAnswersForTheLastHolderOrNobody(t *testing.T) {
	type step struct {
		add    *claim
		remove int // 1-based index of the step whose claim goes
		want   string
	}
	for _, tt := range []struct {
		name  string
		steps []step
	}{
		{"the newer record stands", []step{{add: at("old", 1, 1), want: "old"}, {add: at("new", 2, 2), want: "new"}}},
		{"in whatever order one look finds them", []step{{add: at("new", 2, 1), want: "new"}, {add: at("old", 1, 1), want: "new"}}},
		{"the older one does not come back", []step{
			{add: at("old", 1, 1), want: "old"}, {add: at("new", 2, 2), want: "new"}, {remove: 2, want: ""},
		}},
		{"nor does a third", []step{
			{add: at("new", 3, 1), want: "new"},
			{remove: 1, want: ""},
			{add: at("old", 1, 1), want: "old"},
			{add: at("newer", 4, 2), want: "newer"},
			{add: at("older", 2, 2), want: "newer"},
			{remove: 4, want: ""},
		}},
		{"written at the same time, the one seen later stands", []step{{add: at("old", 1, 1), want: "old"}, {add: at("new", 1, 2), want: "new"}}},
		{"written at the same time and found together, neither stands", []step{
			{add: at("a", 2, 1), want: "a"}, {add: at("b", 2, 1), want: ""}, {add: at("older", 1, 1), want: ""},
		}},
		{"written earlier but seen later, neither stands: the clock was set back", []step{
			{add: at("a", 9, 1), want: "a"}, {add: at("b", 2, 2), want: ""}, {remove: 1, want: ""},
		}},
		{"a record of no pod ends older ones", []step{{add: at("old", 1, 1), want: "old"}, {add: at("", 2, 2), want: ""}, {remove: 2, want: ""}}},
		{"two networks of one pod", []step{
			{add: at("pod", 2, 1), want: "pod"}, {add: at("pod", 1, 1), want: "pod"}, {remove: 1, want: "pod"}, {remove: 2, want: ""},
		}},
		{"a pod's older record does not bring the pod back either", []step{
			{add: at("pod", 1, 1), want: "pod"}, {add: at("other", 2, 2), want: "other"}, {add: at("pod", 1, 2), want: "other"}, {remove: 2, want: ""},
		}},
		{"given anew", []step{{add: at("a", 1, 1), want: "a"}, {remove: 1, want: ""}, {add: at("b", 0, 2), want: "b"}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			all := addresses{}
			for i, s := range tt.steps {
				if s.add != nil {
					all.add(s.add)
				} else {
					all.remove(tt.steps[s.remove-1].add)
				}
				got := ""
				if c := all.lookup(netip.MustParseAddr("10.0.0.1")); c != nil {
					got = c.pod
				}
				if got != s.want {
					t.Fatalf("after step %d: got pod %q, want %q", i+1, got, s.want)
				}
			}
			for _, s := range tt.steps {
				if s.add != nil && all[s.add.addr] != nil && all[s.add.addr].files < 0 {
					t.Error("more files removed than added")
				}
			}
		})
	}
}
