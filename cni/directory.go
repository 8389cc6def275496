package cni

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/fsnotify/fsnotify"
)

// directory is one of the directories that are followed. It is used by the goroutine of Run only, but for what Index.mu
// guards.
type directory struct {
	path    string
	watched string           // what is being watched: path itself, or, while that is absent, its nearest ancestor
	info    os.FileInfo      // of watched, when the watch was set
	err     error            // why nothing can be watched or read; nil: all is well
	files   map[string]*file // :: name -> file, also those that are no records; Index.mu guards it
}

// present says that the directory exists and is watched, so that its files are known.
func (d *directory) present() bool { return d.err == nil && d.watched == d.path }

// attach watches the directory, or its nearest ancestor, so that nothing can happen unseen after it returns.
func (d *directory) attach(w *fsnotify.Watcher) {
	d.watched, d.info = "", nil
	for range 8 { // something else is at work on the path if this is not enough; its next event tries again
		path, info, err := nearest(d.path)
		if err == nil {
			err = w.Add(path)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			d.err = fmt.Errorf("watching %q for CNI records: %w", path, err)
			return
		}
		// Only now is it certain that the watch is on what was looked at.
		if again, now, err := nearest(d.path); err == nil && again == path && os.SameFile(info, now) {
			d.watched, d.info, d.err = path, info, nil
			return
		}
	}
	d.err = fmt.Errorf("watching %q for CNI records: it keeps changing", d.path)
}

// nearest returns path if it is a directory, else its nearest ancestor that is one.
func nearest(path string) (string, os.FileInfo, error) {
	for {
		info, err := os.Stat(path)
		switch {
		case err == nil && info.IsDir():
			return path, info, nil
		case err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR):
			return path, nil, err
		case path == filepath.Dir(path):
			return path, nil, fs.ErrNotExist
		}
		path = filepath.Dir(path)
	}
}

// leadsTo says that name is the directory itself or lies on the way to it.
func (d *directory) leadsTo(name string) bool {
	return name == d.path || strings.HasPrefix(d.path, strings.TrimSuffix(name, "/")+"/")
}

// stands says that the directory is still the one that is watched. If it is not, its files are out of sight, which
// says nothing of the addresses in them; the event that tells so may be on its way.
func (d *directory) stands() bool {
	if !d.present() {
		return false
	}
	now, err := os.Stat(d.path)
	return err == nil && os.SameFile(d.info, now)
}

// change is what a look at one file found.
type change struct {
	dir   *directory
	name  string
	file  *file // nil: it is gone
	taken bool  // what the file said before and does not say now was taken back
}

// look looks at one file. An unchanged one is read again only if reread is set: an event says that it changed, and its
// time may be too coarse to show it. false: there is nothing new.
func (d *directory) look(name string, reread bool, seen uint64) (change, bool) {
	path := filepath.Join(d.path, name)
	old := d.files[name]
	now, why, err := stat(path)
	if err != nil {
		return change{dir: d, name: name, taken: d.stands()}, old != nil
	}
	if old != nil && old.stamp == now && !reread {
		return change{}, false
	}
	fresh := &file{stamp: now, reason: why}
	if why == accepted {
		fresh = read(path, seen)
	}
	return change{dir: d, name: name, file: fresh, taken: d.stands()}, old == nil || old.rewritten(fresh)
}

// scan looks at every file, and at what has become of those that were there.
func (d *directory) scan(seen uint64) (changes []change) {
	var names []string
	if d.present() {
		entries, err := os.ReadDir(d.path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // if it has just gone, the event is on its way
			d.err = fmt.Errorf("reading CNI records: %w", err)
			entries = nil
		}
		for _, entry := range entries {
			names = append(names, entry.Name())
		}
	}
	stands := d.stands() // asked after the reading: it holds for what was read
	for name := range d.files {
		if _, found := slices.BinarySearch(names, name); !found { // ReadDir sorts
			changes = append(changes, change{dir: d, name: name, taken: stands})
		}
	}
	for _, name := range names {
		if c, ok := d.look(name, false, seen); ok {
			changes = append(changes, c)
		}
	}
	return changes
}
