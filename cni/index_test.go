package cni

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// running is an Index at work, whose safety net is so rare that only events move it.
type running struct {
	*Index
	t       *testing.T
	dir     string // the first of its directories
	changed chan struct{}
	fences  int
}

func run(t *testing.T, dirs ...string) *running {
	t.Helper()
	r := &running{t: t, dir: dirs[0], changed: make(chan struct{}, 1)}
	index, err := New(Config{Dirs: dirs, Rescan: time.Hour, OnChange: func() {
		select {
		case r.changed <- struct{}{}:
		default:
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	r.Index = index
	ctx, cancel := context.WithCancel(t.Context())
	var done sync.WaitGroup
	done.Go(func() {
		if err := index.Run(ctx); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	t.Cleanup(func() { cancel(); done.Wait() })
	<-index.Ready()
	return r
}

// until waits for a change of the index after which the condition holds.
func (r *running) until(what string, ok func() bool) {
	r.t.Helper()
	timeout := time.After(20 * time.Second)
	for !ok() {
		select {
		case <-r.changed:
		case <-timeout:
			r.t.Fatalf("waiting until %s: index is %+v, %+v", what, r.Records(), r.Status())
		}
	}
}

func (r *running) untilPod(addr, uid string) {
	r.t.Helper()
	r.until(addr+" is pod "+uid+"'s", func() bool { return r.pod(addr) == uid })
}

// pod returns the UID of the pod that has the address, "" if none is known.
func (r *running) pod(addr string) string {
	rec, ok := r.Lookup(netip.MustParseAddr(addr))
	if ok != (rec.UID != "") {
		r.t.Errorf("Lookup(%s) = %+v, %v", addr, rec, ok)
	}
	return rec.UID
}

// fence waits until everything that was done to the first directory so far has been taken in.
func (r *running) fence() {
	r.t.Helper()
	r.fences++
	addr := fmt.Sprintf("192.0.2.%d", r.fences)
	uid := fmt.Sprintf("fence%d", r.fences)
	write(r.t, r.dir, uid, uid, addr+"/32")
	r.untilPod(addr, uid)
}

// write writes a record as libcni does: in place, not by renaming.
func write(t *testing.T, dir, uid, sandbox string, cidrs ...string) string {
	t.Helper()
	path := filepath.Join(dir, "net-"+sandbox+"-eth0")
	if err := os.WriteFile(path, record(uid, sandbox, cidrs...), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestAnAddressIsKnownWhenItsRecordIsWrittenAndUnknownWhenItIsRemoved(t *testing.T) {
	r := run(t, t.TempDir())
	path := write(t, r.dir, "u1", "s1", "10.0.0.1/24", "fd00::1/64")
	r.untilPod("10.0.0.1", "u1")
	got, _ := r.Lookup(netip.MustParseAddr("fd00::1"))
	info, err := os.Stat(path)
	must(t, err)
	want := Record{
		UID: "u1", Namespace: "shop", Name: "pod-u1", Sandbox: "s1", Network: "net", Ifname: "eth0", HostInterface: "veth-s1",
		Addrs: []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::1")}, File: path, Given: info.ModTime(),
	}
	if diff := cmp.Diff(want, got, addrCmp); diff != "" {
		t.Errorf("record (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]Record{want}, r.Records(), addrCmp); diff != "" {
		t.Errorf("records (-want +got):\n%s", diff)
	}
	must(t, os.Remove(path))
	r.untilPod("10.0.0.1", "")
	r.untilPod("fd00::1", "")
}

func TestAnIPv4MappedAddressIsTheIPv4Address(t *testing.T) {
	r := run(t, t.TempDir())
	write(t, r.dir, "u1", "s1", "::ffff:10.0.0.1/120")
	r.untilPod("10.0.0.1", "u1")
	r.untilPod("::ffff:10.0.0.1", "u1")
}

func TestRecordsThatAreThereBeforeAreKnownWhenReady(t *testing.T) {
	dir := t.TempDir()
	old := write(t, dir, "old", "s1", "10.0.0.1/24")
	write(t, dir, "new", "s2", "10.0.0.1/24")
	// The names sort against the times, so that the order of the directory does not help.
	must(t, os.Chtimes(old, time.Time{}, time.Now().Add(-time.Second)))
	if got := run(t, dir).pod("10.0.0.1"); got != "new" {
		t.Errorf("got pod %q, want the newer record's", got)
	}
}

func TestTheNewerRecordStandsAndTheOlderDoesNotComeBack(t *testing.T) {
	r := run(t, t.TempDir())
	old := write(t, r.dir, "old", "s1", "10.0.0.1/24")
	r.untilPod("10.0.0.1", "old")
	recent := write(t, r.dir, "new", "s2", "10.0.0.1/24")
	r.untilPod("10.0.0.1", "new")
	must(t, os.Remove(recent))
	r.untilPod("10.0.0.1", "")
	must(t, os.Chmod(old, 0o400)) // an event that changes nothing
	r.fence()
	if got := r.pod("10.0.0.1"); got != "" {
		t.Errorf("the address went back to pod %q", got)
	}
	write(t, r.dir, "old", "s1", "10.0.0.1/24")
	r.untilPod("10.0.0.1", "old") // libcni wrote it again: it was given again
}

func TestAHalfWrittenRecordCountsAsSkippedUntilItIsWhole(t *testing.T) {
	r := run(t, t.TempDir())
	data := record("u1", "s1", "10.0.0.1/24")
	f, err := os.Create(filepath.Join(r.dir, "net-s1-eth0"))
	must(t, err)
	defer func() { _ = f.Close() }()
	_, err = f.Write(data[:100])
	must(t, err)
	r.fence()
	if got := r.Status().Dirs[0].Skipped; got["torn"] != 1 || r.pod("10.0.0.1") != "" {
		t.Errorf("half written: skipped %v, pod %q", got, r.pod("10.0.0.1"))
	}
	_, err = f.Write(data[100:])
	must(t, err)
	r.untilPod("10.0.0.1", "u1")
	if got := r.Status().Dirs[0].Skipped; len(got) != 0 {
		t.Errorf("whole: skipped %v", got)
	}
	must(t, f.Truncate(50)) // being written anew
	r.untilPod("10.0.0.1", "")
}

func TestARecordMayBeRenamedIntoPlaceAndAway(t *testing.T) {
	r := run(t, t.TempDir())
	elsewhere := write(t, t.TempDir(), "u1", "s1", "10.0.0.1/24")
	here := filepath.Join(r.dir, filepath.Base(elsewhere))
	must(t, os.Rename(elsewhere, here))
	r.untilPod("10.0.0.1", "u1")
	must(t, os.Rename(here, elsewhere))
	r.untilPod("10.0.0.1", "")
}

func TestOnlyRegularFilesOfASaneSizeAreRead(t *testing.T) {
	r := run(t, t.TempDir())
	target := write(t, t.TempDir(), "evil", "s1", "10.0.0.1/24")
	must(t, os.Symlink(target, filepath.Join(r.dir, filepath.Base(target))))
	must(t, syscall.Mkfifo(filepath.Join(r.dir, "net-s2-eth0"), 0o600))
	must(t, os.Mkdir(filepath.Join(r.dir, "net-s3-eth0"), 0o700))
	huge := append(record("evil", "s4", "10.0.0.1/24"), make([]byte, maxRecord)...)
	for i := len(huge) - maxRecord; i < len(huge); i++ {
		huge[i] = ' '
	}
	must(t, os.WriteFile(filepath.Join(r.dir, "net-s4-eth0"), huge, 0o600))
	r.fence()
	want := map[string]int{"symlink": 1, "irregular": 2, "oversized": 1}
	if diff := cmp.Diff(want, r.Status().Dirs[0].Skipped); diff != "" {
		t.Errorf("skipped (-want +got):\n%s", diff)
	}
	if got := r.pod("10.0.0.1"); got != "" {
		t.Errorf("got pod %q", got)
	}
	if f := read(filepath.Join(r.dir, filepath.Base(target)), 1); f.reason != unread || len(f.claims) > 0 {
		t.Errorf("a symbolic link put in place of a file was read: %+v", f)
	}
}

func TestADirectoryMayAppearLateVanishAndReturn(t *testing.T) {
	base := t.TempDir()
	dir := filepath.Join(base, "cni", "cache", "results")
	r := run(t, dir)
	if got := r.Status().Dirs[0]; got.Watched != base || got.Error != "" {
		t.Errorf("absent: %+v", got)
	}
	for range 3 {
		must(t, os.MkdirAll(dir, 0o700))
		write(t, dir, "u1", "s1", "10.0.0.1/24")
		r.untilPod("10.0.0.1", "u1")
		if got := r.Status().Dirs[0]; got.Watched != dir {
			t.Errorf("present: %+v", got)
		}
		must(t, os.RemoveAll(filepath.Join(base, "cni")))
		r.untilPod("10.0.0.1", "")
	}
	must(t, os.MkdirAll(dir, 0o700))
	write(t, dir, "u1", "s1", "10.0.0.1/24")
	r.untilPod("10.0.0.1", "u1")
	must(t, os.Rename(dir, dir+".old"))
	r.untilPod("10.0.0.1", "")
	must(t, os.Rename(dir+".old", dir))
	r.untilPod("10.0.0.1", "u1")
}

func TestADirectoryInPlaceOfAnotherIsReadAnew(t *testing.T) {
	base := t.TempDir()
	dir, next := filepath.Join(base, "results"), filepath.Join(base, "next")
	must(t, os.Mkdir(dir, 0o700))
	must(t, os.Mkdir(next, 0o700))
	r := run(t, dir)
	write(t, dir, "u1", "s1", "10.0.0.1/24")
	r.untilPod("10.0.0.1", "u1")
	write(t, next, "u2", "s2", "10.0.0.2/24")
	must(t, os.Rename(dir, filepath.Join(base, "before")))
	must(t, os.Rename(next, dir))
	r.untilPod("10.0.0.2", "u2")
	r.untilPod("10.0.0.1", "")
	r.fence()
}

func TestSeveralDirectoriesAreOneIndex(t *testing.T) {
	base := t.TempDir()
	one, two := filepath.Join(base, "results"), filepath.Join(base, "cache", "results")
	link := filepath.Join(base, "link")
	must(t, os.MkdirAll(one, 0o700))
	must(t, os.Symlink(one, link))
	r := run(t, one, two, link, one)
	write(t, one, "u1", "s1", "10.0.0.1/24")
	r.untilPod("10.0.0.1", "u1")
	must(t, os.MkdirAll(two, 0o700))
	write(t, two, "u2", "s2", "10.0.0.2/24")
	r.untilPod("10.0.0.2", "u2")
	dirs := r.Status().Dirs
	if len(dirs) != 3 || dirs[2].Error == "" || dirs[2].Files != 0 {
		t.Errorf("a directory by its second name is used: %+v", dirs)
	}
}

func TestWhatTheKernelDroppedIsFoundAfterTheOverflow(t *testing.T) {
	limit, err := os.ReadFile("/proc/sys/fs/inotify/max_queued_events")
	if err != nil {
		t.Skip("no inotify:", err)
	}
	queue, err := strconv.Atoi(strings.TrimSpace(string(limit)))
	must(t, err)
	if queue > 100_000 {
		t.Skipf("the kernel queues %d events", queue)
	}
	r := run(t, t.TempDir())
	one, two := write(t, r.dir, "u1", "s1", "10.0.0.1/24"), write(t, r.dir, "u2", "s2", "10.0.0.2/24")
	r.untilPod("10.0.0.2", "u2")
	r.mu.RLock()      // Run can take nothing in
	for range queue { // equal events that follow each other would be merged
		must(t, os.Chmod(one, 0o600))
		must(t, os.Chmod(two, 0o600))
	}
	must(t, os.Remove(one))
	write(t, r.dir, "u3", "s3", "10.0.0.1/24")
	r.mu.RUnlock()
	r.untilPod("10.0.0.1", "u3")
	if got := testutil.ToFloat64(r.metrics.overflows); got < 1 {
		t.Errorf("%v overflows: the test did not reach what it is about", got)
	}
}

func TestADirectoryThatCannotBeReadAnswersNothing(t *testing.T) {
	base := t.TempDir()
	loop := filepath.Join(base, "loop")
	must(t, os.Symlink(loop, loop))
	r := run(t, base, filepath.Join(loop, "results"))
	if got := r.Status().Dirs[1]; got.Error == "" || got.Watched != "" {
		t.Errorf("got %+v", got)
	}
	r.fence() // the other one works
}

func TestWithoutInotifyTheIndexIsEmptyAndReady(t *testing.T) {
	index, err := New(Config{Dirs: []string{t.TempDir()}})
	must(t, err)
	write(t, index.dirs[0].path, "u1", "s1", "10.0.0.1/24")
	w, err := fsnotify.NewWatcher()
	must(t, err)
	index.resync(w)
	must(t, w.Close())
	index.lose(fsnotify.ErrClosed)
	<-index.Ready()
	if _, ok := index.Lookup(netip.MustParseAddr("10.0.0.1")); ok {
		t.Error("a record that is not followed is still believed")
	}
	if got := index.Status().Dirs[0]; got.Error == "" || got.Files != 0 {
		t.Errorf("status %+v", got)
	}
}

func TestTheMetricsSayWhatIsKnownAndWhatIsSkipped(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	dir := t.TempDir()
	write(t, dir, "u1", "s1", "10.0.0.1/24")
	must(t, os.WriteFile(filepath.Join(dir, "net-s2-eth0"), nil, 0o600))
	index, err := New(Config{Dirs: []string{dir, "/nonexistent"}, Registerer: registry})
	must(t, err)
	w, err := fsnotify.NewWatcher()
	must(t, err)
	defer func() { _ = w.Close() }()
	index.resync(w)
	const want = `
# HELP pod2role_cni_addresses Addresses whose pod is known from a CNI record.
# TYPE pod2role_cni_addresses gauge
pod2role_cni_addresses 1
# HELP pod2role_cni_watched_directories CNI results directories that exist and are watched.
# TYPE pod2role_cni_watched_directories gauge
pod2role_cni_watched_directories 1
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "pod2role_cni_addresses", "pod2role_cni_watched_directories"); err != nil {
		t.Error(err)
	}
	if got, err := testutil.GatherAndCount(registry, "pod2role_cni_skipped_files"); err != nil || got != len(reasons()) {
		t.Errorf("got %d series of skipped files, %v, want one per reason", got, err)
	}
	if _, err := New(Config{Registerer: registry}); err == nil {
		t.Error("New registered the metrics twice")
	}
}

func TestARelativeDirectoryIsRefused(t *testing.T) {
	if _, err := New(Config{Dirs: []string{"results", "/ok", "more"}}); err == nil {
		t.Error("New accepted a relative directory")
	}
}

func TestThousandsOfRecordsComeAndGo(t *testing.T) {
	r := run(t, t.TempDir())
	const pods = 3000
	addr := func(i int) string { return fmt.Sprintf("10.7.%d.%d", i/250, i%250+1) }
	for i := range pods {
		write(t, r.dir, fmt.Sprintf("a%d", i), fmt.Sprintf("a%d", i), addr(i)+"/16")
	}
	r.until("all addresses are known", func() bool { return r.Status().Addresses == pods })
	for i := range pods { // each address goes to another pod before the old record is removed, as libcni has it
		write(t, r.dir, fmt.Sprintf("b%d", i), fmt.Sprintf("b%d", i), addr(i)+"/16")
		must(t, os.Remove(filepath.Join(r.dir, fmt.Sprintf("net-a%d-eth0", i))))
	}
	r.fence()
	for i := range pods {
		if got := r.pod(addr(i)); got != fmt.Sprintf("b%d", i) {
			t.Fatalf("%s is pod %q's", addr(i), got)
		}
	}
	for i := range pods {
		must(t, os.Remove(filepath.Join(r.dir, fmt.Sprintf("net-b%d-eth0", i))))
	}
	r.until("only the fence is left", func() bool { return len(r.Records()) == 1 })
	if len(r.all) != 1 {
		t.Errorf("%d addresses are remembered", len(r.all))
	}
}

func TestLookupDoesNotAllocate(t *testing.T) {
	r := run(t, t.TempDir())
	write(t, r.dir, "u1", "s1", "10.0.0.1/24")
	r.untilPod("10.0.0.1", "u1")
	addr := netip.MustParseAddr("::ffff:10.0.0.1")
	if n := testing.AllocsPerRun(100, func() { r.Lookup(addr) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkLookup(b *testing.B) {
	x, err := New(Config{})
	if err != nil {
		b.Fatal(err)
	}
	addr := netip.MustParseAddr("10.0.0.1")
	x.all.add(&claim{addr: addr, pod: "u1", record: &Record{UID: "u1"}})
	b.ReportAllocs()
	for b.Loop() {
		x.Lookup(addr)
	}
}
