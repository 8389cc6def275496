package cni

import (
	"bytes"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

func TestAnAddressIsKnownWhenItsRecordIsWrittenAndUnknownWhenItIsRemoved(t *testing.T) {
	r := run(t, t.TempDir())
	path := write(t, r.dir, "u1", "s1", "10.0.0.1/24", "fd00::1/64")
	r.untilPod("10.0.0.1", "u1")
	got, _ := r.Lookup(netip.MustParseAddr("fd00::1"))
	info, err := os.Stat(path)
	must(t, err)
	want := Record{
		UID: "u1", Namespace: "shop", Name: "pod-u1", Sandbox: "s1", Network: "net", Ifname: "eth0", HostInterface: "veth-s1", HostInterfaces: []string{"veth-s1"},
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

// An address that no record tells is the pod's to whose interface it is routed.
func TestAnInterfaceIsThePodsThatAloneWasGivenIt(t *testing.T) {
	dir := t.TempDir()
	r := run(t, dir)
	write(t, dir, "u1", "s1", "10.0.0.1/24", "fd00::1/64")
	gone := write(t, dir, "u2", "s2", "10.0.0.2/24")
	r.untilPod("10.0.0.1", "u1")
	r.untilPod("10.0.0.2", "u2")
	for name, want := range map[string]string{"veth-s1": "u1", "veth-s2": "u2", "veth-s3": "", "eth0": "", "": ""} {
		if got, ok := r.LookupInterface(name); got.UID != want || ok != (want != "") {
			t.Errorf("%q is pod %q's (%v), want %q", name, got.UID, ok, want)
		}
	}
	must(t, os.Remove(gone))
	r.untilPod("10.0.0.2", "")
	if got, ok := r.LookupInterface("veth-s2"); ok {
		t.Errorf("the interface is pod %q's, whose record is gone", got.UID)
	}
	must(t, os.WriteFile(filepath.Join(dir, "net-s9-eth0"), bytes.ReplaceAll(record("u9", "s9", "10.0.0.9/24"), []byte("veth-s9"), []byte("veth-s1")), 0o600))
	r.untilPod("10.0.0.9", "u9")
	if got, ok := r.LookupInterface("veth-s1"); ok {
		t.Errorf("the interface is pod %q's, though two pods' records name it", got.UID)
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
