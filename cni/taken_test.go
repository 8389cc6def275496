package cni

import (
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
)

// takenFrom returns the pod that 10.0.0.1 was taken back from, "" if none is remembered.
func (r *running) takenFrom() string {
	pod, at := r.TakenBack(netip.MustParseAddr("::ffff:10.0.0.1"))
	if (pod == "") != at.IsZero() {
		r.t.Errorf("TakenBack: pod %q, at %v", pod, at)
	}
	return pod
}

func TestAnAddressThatWasTakenBackIsRememberedWithWhoHadItLast(t *testing.T) {
	r := run(t, t.TempDir())
	path := write(t, r.dir, "u1", "s1", "10.0.0.1/24")
	r.untilPod("10.0.0.1", "u1")
	if got := r.takenFrom(); got != "" {
		t.Errorf("given: taken back from %q", got)
	}
	before := time.Now()
	must(t, os.Remove(path))
	r.untilPod("10.0.0.1", "")
	if pod, at := r.TakenBack(netip.MustParseAddr("10.0.0.1")); pod != "u1" || at.Before(before) || at.After(time.Now()) {
		t.Errorf("taken back: from %q at %v, want from u1 after %v", pod, at, before)
	}

	path = write(t, r.dir, "u2", "s2", "10.0.0.1/24")
	r.untilPod("10.0.0.1", "u2")
	if got := r.takenFrom(); got != "" {
		t.Errorf("given anew: taken back from %q", got)
	}
	data, err := os.ReadFile(path)
	must(t, err)
	must(t, os.Truncate(path, 50)) // nobody can tell any more whose it is
	r.untilPod("10.0.0.1", "")
	if got := r.takenFrom(); got != "u2" {
		t.Errorf("torn: taken back from %q, want u2", got)
	}
	must(t, os.WriteFile(path, data, 0o600))
	r.untilPod("10.0.0.1", "u2")
	if got := r.takenFrom(); got != "" {
		t.Errorf("whole again: taken back from %q", got)
	}
}

func TestARecordOfNoPodTakesAnAddressBack(t *testing.T) {
	r := run(t, t.TempDir())
	write(t, r.dir, "u1", "s1", "10.0.0.1/24")
	r.untilPod("10.0.0.1", "u1")
	path := write(t, r.dir, "", "s2", "10.0.0.1/24")
	r.untilPod("10.0.0.1", "")
	if got := r.takenFrom(); got != "u1" {
		t.Errorf("taken back from %q, want u1", got)
	}
	must(t, os.Remove(path))
	r.fence()
	if got := r.takenFrom(); got != "u1" {
		t.Errorf("after the other's end: taken back from %q, want u1", got)
	}
}

func TestAPodWithARecordLeftHasItsAddress(t *testing.T) {
	r := run(t, t.TempDir())
	one := write(t, r.dir, "u1", "s1", "10.0.0.1/24")
	write(t, r.dir, "u1", "s2", "10.0.0.1/24") // by another network
	r.fence()
	must(t, os.Remove(one))
	r.fence()
	if got := r.takenFrom(); got != "" || r.pod("10.0.0.1") != "u1" {
		t.Errorf("the address is pod %q's, and was taken back from %q", r.pod("10.0.0.1"), got)
	}
}

func TestADirectoryThatIsGoneTakesNoAddressBack(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "results")
	must(t, os.Mkdir(dir, 0o700))
	r := run(t, dir)
	write(t, dir, "u1", "s1", "10.0.0.1/24")
	r.untilPod("10.0.0.1", "u1")
	must(t, os.Rename(dir, dir+".old"))
	r.untilPod("10.0.0.1", "")
	if got := r.takenFrom(); got != "" {
		t.Errorf("taken back from %q", got)
	}
	must(t, os.Rename(dir+".old", dir))
	r.untilPod("10.0.0.1", "u1")

	// Nor does the end of inotify.
	index, err := New(Config{Dirs: []string{dir}})
	must(t, err)
	w, err := fsnotify.NewWatcher()
	must(t, err)
	index.resync(w)
	must(t, w.Close())
	index.lose(fsnotify.ErrClosed)
	if pod, at := index.TakenBack(netip.MustParseAddr("10.0.0.1")); pod != "" || !at.IsZero() {
		t.Errorf("without inotify: taken back from %q", pod)
	}
}

func TestWhatIsRememberedOfAddressesThatWereTakenBackIsBounded(t *testing.T) {
	all := takings{}
	addr := netip.MustParseAddr("fd00::1")
	first, start := addr, time.Now()
	for i := range maxTaken + 10 {
		all.note(addr, "u", start.Add(time.Duration(i)))
		addr = addr.Next()
	}
	if _, known := all[first]; len(all) != maxTaken || known {
		t.Errorf("%d addresses are remembered, the first %v, want %d without it", len(all), known, maxTaken)
	}
}
