package cni

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/fsnotify/fsnotify"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

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
