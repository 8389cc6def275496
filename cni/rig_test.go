package cni

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"
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
