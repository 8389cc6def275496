package cluster

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"pod2role/mappings"
)

// pod is one of node n1 at 10.0.0.1.
func pod(uid, name, version string) *mappings.Pod {
	return &mappings.Pod{
		UID: uid, Namespace: "shop", Name: name, Node: "n1", ResourceVersion: version,
		Addrs: []netip.Addr{addr("10.0.0.1")}, Annotations: map[string]string{"role": "v" + version},
	}
}

func TestNothingOlderThanTheWatchGetsIntoTheView(t *testing.T) {
	list := func(version string, pods ...*mappings.Pod) func(*podView) {
		return func(v *podView) { v.replaced(pods, version) }
	}
	watch := func(p *mappings.Pod) func(*podView) { return func(v *podView) { v.watched(p) } }
	read := func(p *mappings.Pod) func(*podView) { return func(v *podView) { v.found(p) } }
	end := func(uid, version string) func(*podView) { return func(v *podView) { v.deleted(uid, version) } }
	mark := func(version string) func(*podView) { return func(v *podView) { v.bookmark(version) } }
	for _, tt := range []struct {
		name  string
		steps []func(*podView)
		want  string // UID/role of the pods
	}{
		{"a read is ahead of the watch", []func(*podView){list("100"), read(pod("u1", "a", "101"))}, "u1/v101"},
		{"of a pod that is known", []func(*podView){list("100", pod("u1", "a", "90")), read(pod("u1", "a", "101"))}, "u1/v101"},
		{"and the watch comes after", []func(*podView){
			list("100", pod("u1", "a", "90")), read(pod("u1", "a", "102")), watch(pod("u1", "a", "101")),
		}, "u1/v102"},
		{"and then overtakes", []func(*podView){
			list("100", pod("u1", "a", "90")), read(pod("u1", "a", "102")), watch(pod("u1", "a", "103")),
		}, "u1/v103"},
		{"a read is behind the watch", []func(*podView){list("100", pod("u1", "a", "100")), read(pod("u1", "a", "90"))}, "u1/v100"},
		{"a read brings back what the watch has ended", []func(*podView){
			list("100", pod("u1", "a", "90")), end("u1", "101"), read(pod("u1", "a", "90")),
		}, ""},
		{"with the last version it had", []func(*podView){
			list("100"), watch(pod("u1", "a", "101")), end("u1", "105"), read(pod("u1", "a", "104")),
		}, ""},
		{"a read brings back what the list no longer had", []func(*podView){
			list("100", pod("u1", "a", "90")), list("120"), read(pod("u1", "a", "110")),
		}, ""},
		{"a read brings what ended before the list", []func(*podView){list("100"), read(pod("u1", "a", "90"))}, ""},
		{"a read brings what ended before a bookmark", []func(*podView){list("100"), mark("120"), read(pod("u1", "a", "110"))}, ""},
		{"versions are numbers", []func(*podView){list("99"), read(pod("u1", "a", "100"))}, "u1/v100"},
		{"versions that cannot be compared", []func(*podView){list("100"), read(pod("u1", "a", ""))}, ""},
		{"before the first list nothing is kept", []func(*podView){read(pod("u1", "a", "100"))}, ""},
		{"a list that is behind a read does not end what was read", []func(*podView){
			list("100"), read(pod("u1", "a", "111")), list("105"),
		}, "u1/v111"},
		{"a list that is ahead of it does", []func(*podView){list("100"), read(pod("u1", "a", "111")), list("120")}, ""},
		{"so does the watch", []func(*podView){list("100"), read(pod("u1", "a", "111")), end("u1", "115")}, ""},
		{"a name changes hands", []func(*podView){list("100", pod("u1", "a", "90")), read(pod("u2", "a", "110"))}, "u2/v110"},
		{"and the watch confirms", []func(*podView){
			list("100", pod("u1", "a", "90")), read(pod("u2", "a", "110")), end("u1", "105"), watch(pod("u2", "a", "106")),
		}, "u2/v110"},
		{"the end of what was never seen", []func(*podView){list("100"), end("u9", "101")}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			v := newPodView(Config{Node: "n1"})
			for _, step := range tt.steps {
				step(&v)
			}
			var got []string
			for _, p := range v.all() {
				got = append(got, p.UID+"/"+p.Annotations["role"])
				if len(v.at(addr("10.0.0.1"))) != 1 || v.at(addr("10.0.0.1"))[0] != p {
					t.Errorf("by address: %+v", v.at(addr("10.0.0.1")))
				}
			}
			if strings.Join(got, " ") != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
			if len(got) == 0 && len(v.addrs) > 0 {
				t.Errorf("no pods, but addresses: %v", v.addrs)
			}
		})
	}
}

func TestAReadReturnsWhatIsToBeBelieved(t *testing.T) {
	v := newPodView(Config{Node: "n1"})
	early := pod("u0", "z", "50")
	if got := v.found(early); got != early {
		t.Errorf("before the first list: got %+v, want what was read", got)
	}
	known := pod("u1", "a", "90")
	v.replaced([]*mappings.Pod{known}, "100")
	if got := v.found(pod("u1", "a", "80")); got != known {
		t.Errorf("late: got %+v, want the newer version", got)
	}
	if got := v.found(pod("u2", "b", "70")); got != nil {
		t.Errorf("late, of a pod that is gone: got %+v", got)
	}
	fresh := pod("u3", "c", "110")
	if got := v.found(fresh); got != fresh {
		t.Errorf("early: got %+v, want what was read", got)
	}
}

func TestAnAddressLeadsToLivePodsOnly(t *testing.T) {
	v := newPodView(Config{Node: "n1"})
	change := func(uid string, with func(*mappings.Pod)) *mappings.Pod {
		p := pod(uid, uid, "1")
		with(p)
		return p
	}
	plain, deleting := pod("plain", "plain", "1"), change("deleting", func(p *mappings.Pod) { p.Deleting = true })
	v.replaced([]*mappings.Pod{
		plain, deleting,
		change("host", func(p *mappings.Pod) { p.HostNetwork = true }),
		change("finished", func(p *mappings.Pod) { p.Finished = true }),
		change("elsewhere", func(p *mappings.Pod) { p.Addrs = []netip.Addr{addr("10.0.0.2"), addr("fd00::2")} }),
	}, "10")
	got := v.at(addr("::ffff:10.0.0.1"))
	if len(got) != 2 || !slices.Contains(got, plain) || !slices.Contains(got, deleting) {
		t.Errorf("got %+v", got)
	}
	for _, uid := range []string{"host", "finished"} {
		if v.byUID(uid) == nil {
			t.Errorf("pod %q is not known by its UID", uid)
		}
	}
	if got := v.at(addr("fd00::2")); len(got) != 1 || got[0].UID != "elsewhere" {
		t.Errorf("second address: got %+v", got)
	}
	kept := v.at(addr("10.0.0.1"))
	v.watched(change("plain", func(p *mappings.Pod) { p.Finished, p.ResourceVersion = true, "11" }))
	if len(kept) != 2 || kept[0] == nil || kept[1] == nil {
		t.Error("a slice that was handed out has been modified")
	}
	if got := v.at(addr("10.0.0.1")); len(got) != 1 || got[0] != deleting {
		t.Errorf("after one has finished: got %+v", got)
	}
	v.deleted("deleting", "12")
	if got := v.at(addr("10.0.0.1")); got != nil {
		t.Errorf("after the other is gone: got %+v", got)
	}
}

func TestAPodIsReplacedOnlyIfSomethingMattersAndEveryChangeIsTold(t *testing.T) {
	var told []string
	name := func(p *mappings.Pod) string {
		if p == nil {
			return "-"
		}
		return p.UID + p.Annotations["role"]
	}
	v := newPodView(Config{Node: "n1", OnPod: func(before, after *mappings.Pod) { told = append(told, name(before)+">"+name(after)) }})
	first := pod("u", "a", "1")
	v.replaced([]*mappings.Pod{first}, "1")
	heartbeat := pod("u", "a", "2")
	heartbeat.Annotations["role"] = "v1"
	v.watched(heartbeat)
	if v.byUID("u") != first {
		t.Error("a new version that brings nothing replaced the pod")
	}
	if got := v.found(pod("u", "a", "2")); got != first {
		t.Errorf("the version that was seen is not remembered: got %+v", got)
	}
	v.watched(pod("u", "a", "3"))
	v.deleted("u", "4")
	if diff := cmp.Diff([]string{"->uv1", "uv1>uv3", "uv3>-"}, told); diff != "" {
		t.Errorf("told (-want +got):\n%s", diff)
	}
}

func TestLookingUpDoesNotAllocate(t *testing.T) {
	c := &Cluster{pods: newPodView(Config{}), namespaces: newNamespaceView(Config{})}
	c.pods.replaced([]*mappings.Pod{pod("u1", "a", "1")}, "1")
	c.namespaces.put("shop", &mappings.Namespace{Name: "shop"})
	at := addr("::ffff:10.0.0.1")
	if n := testing.AllocsPerRun(100, func() {
		if c.Pod("u1") == nil || len(c.PodsAt(at)) != 1 || c.Namespace("shop") == nil {
			t.Error("not found")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestAnotherNodesPodIsIgnoredWhoeverSendsIt(t *testing.T) {
	c := &Cluster{pods: newPodView(Config{Node: "n1"})}
	s := podStore{view: &c.pods, feed: &feed{synced: make(chan struct{})}}
	theirs := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "u1", ResourceVersion: "5"}, Spec: corev1.PodSpec{NodeName: "n2"}}
	if err := errors.Join(s.Replace([]any{theirs}, "5"), s.Update(theirs)); err != nil || c.Pod("u1") != nil {
		t.Errorf("got %v, %v", c.Pod("u1"), err)
	}
}

func TestAnOutageIsLoggedOnceAndSoIsItsEnd(t *testing.T) {
	var lines []string
	logger := logrus.New()
	logger.SetOutput(io.Discard)
	logger.AddHook(lineHook(func(line string) { lines = append(lines, line) }))
	f := &feed{log: logrus.NewEntry(logger)}
	f.connected(watch.NewFake()).Stop()
	for range 3 {
		f.failed(io.ErrUnexpectedEOF)
	}
	f.failed(apierrors.NewResourceExpired("too old"))
	f.connected(watch.NewFake()).Stop()
	f.connected(watch.NewFake())
	want := []string{"API server cannot be asked; what was last known is used", "API server answers again"}
	if diff := cmp.Diff(want, lines); diff != "" {
		t.Errorf("logged (-want +got):\n%s", diff)
	}
	if s := f.state; s.Errors != 3 || s.Watches != 3 || !s.Connected {
		t.Errorf("state %+v", s)
	}
}

// lineHook is told every message that is logged.
type lineHook func(string)

// Levels implements logrus.Hook.
func (lineHook) Levels() []logrus.Level { return logrus.AllLevels }

// Fire implements logrus.Hook.
func (f lineHook) Fire(e *logrus.Entry) error { f(e.Message); return nil }

func TestAStoreRefusesWhatItDoesNotKnow(t *testing.T) {
	c := &Cluster{pods: newPodView(Config{}), namespaces: newNamespaceView(Config{})}
	for _, obj := range []any{nil, "x", &mappings.Pod{}} {
		for _, err := range []error{
			podStore{view: &c.pods}.Add(obj), podStore{view: &c.pods}.Delete(obj), podStore{view: &c.pods}.Replace([]any{obj}, "1"),
			namespaceStore{view: &c.namespaces}.Update(obj), namespaceStore{view: &c.namespaces}.Delete(obj),
			namespaceStore{view: &c.namespaces}.Replace([]any{obj}, "1"),
		} {
			if err == nil {
				t.Errorf("%s was taken", fmt.Sprintf("%T", obj))
			}
		}
	}
}
