package cni

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"
)

// follow keeps the index until ctx ends or inotify fails.
func (x *Index) follow(ctx context.Context) error {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("starting inotify: %w", err)
	}
	var drained sync.WaitGroup
	defer drained.Wait()
	defer func() { _ = w.Close() }()

	// Every error means the same: something was missed, look at everything. They are taken off in a goroutine of their
	// own because the watcher may report one while it holds the lock that Add and Remove need.
	again := make(chan struct{}, 1)
	drained.Go(func() {
		for err := range w.Errors {
			if errors.Is(err, fsnotify.ErrEventOverflow) {
				x.metrics.overflows.Inc()
			}
			select {
			case again <- struct{}{}:
			default:
			}
		}
	})

	timer := time.NewTimer(x.resync(w))
	defer timer.Stop()
	x.markReady()
	for {
		select {
		case <-ctx.Done():
			return nil
		case event, ok := <-w.Events:
			if !ok {
				return errors.New("reading inotify events: the watcher has ended")
			}
			if x.handle(event.Name) {
				x.resync(w)
			}
		case <-again:
			x.resync(w)
		case <-timer.C:
			timer.Reset(x.resync(w))
		}
	}
}

func (x *Index) markReady() {
	select {
	case <-x.ready:
	default:
		close(x.ready)
	}
}

// handle takes an event in: name is the path that something happened to. true: a directory itself is concerned.
func (x *Index) handle(name string) (structural bool) {
	if name == "" { // fsnotify passes on events that it has dealt with itself
		return false
	}
	var changes []change
	x.looks++
	for _, d := range x.dirs {
		if d.leadsTo(name) {
			structural = true
		} else if d.present() && filepath.Dir(name) == d.path {
			if c, ok := d.look(filepath.Base(name), true, x.looks); ok {
				changes = append(changes, c)
			}
		}
	}
	x.apply(changes)
	return structural
}

// resync sets the watches right, looks at every file, and returns after how long to do so again without being told.
func (x *Index) resync(w *fsnotify.Watcher) time.Duration {
	start := time.Now()
	x.metrics.scans.Inc()
	x.looks++
	var changes []change
	wanted := map[string]bool{}
	for i, d := range x.dirs {
		before := d.err
		if d.attach(w); d.err == nil {
			d.err = x.alias(i)
		}
		wanted[d.watched] = true
		changes = append(changes, d.scan(x.looks)...)
		if d.err != nil && before == nil {
			x.log.WithError(d.err).WithField("dir", d.path).Warn("CNI results directory is not used")
		}
	}
	for _, path := range w.WatchList() {
		if !wanted[path] {
			_ = w.Remove(path) // an error means that the kernel was faster
		}
	}
	x.apply(changes)
	return max(x.cfg.Rescan, 100*time.Since(start))
}

// alias returns an error if directory i is an earlier one by another name: inotify knows one watch per inode, so that
// events would come under one of the names only.
func (x *Index) alias(i int) error {
	d := x.dirs[i]
	for _, other := range x.dirs[:i] {
		if d.present() && other.present() && os.SameFile(d.info, other.info) {
			return fmt.Errorf("%q is the same directory as %q", d.path, other.path)
		}
	}
	return nil
}

// apply makes what was found known, all at once: in between, an older record could stand for want of the newer one.
func (x *Index) apply(changes []change) {
	changed, now := false, time.Now()
	x.mu.Lock()
	for i, d := range x.dirs {
		x.status[i].Watched, x.status[i].Error = d.watched, ""
		if d.err != nil {
			x.status[i].Error = d.err.Error()
		}
	}
	for _, c := range changes {
		if old := c.dir.files[c.name]; old != nil {
			for _, gone := range old.claims {
				if pod := x.all.remove(gone); pod != "" && c.taken {
					x.taken.note(gone.addr, pod, now)
				}
			}
			changed = changed || len(old.claims) > 0
			delete(c.dir.files, c.name)
		}
	}
	for _, c := range changes {
		if c.file != nil {
			for _, fresh := range c.file.claims {
				if pod := x.all.add(fresh); pod != "" {
					x.taken.note(fresh.addr, pod, now)
				} else if c := x.all.lookup(fresh.addr); c != nil && c.pod != "" {
					delete(x.taken, fresh.addr)
				}
			}
			changed = changed || len(c.file.claims) > 0
			c.dir.files[c.name] = c.file
		}
	}
	x.mu.Unlock()
	if changed && x.cfg.OnChange != nil {
		x.cfg.OnChange()
	}
}

// lose empties the index.
func (x *Index) lose(err error) {
	var changes []change
	for _, d := range x.dirs {
		d.watched, d.info, d.err = "", nil, err
		changes = append(changes, d.scan(x.looks)...)
	}
	x.apply(changes)
	x.markReady()
}
