package cni

import (
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// maxRecord bounds a record, in bytes. Real ones have one or two thousand.
const maxRecord = 1 << 20

// stamp tells whether a file is still the one that was read.
type stamp struct {
	inode    uint64
	size     int64
	modified time.Time
	changed  time.Time // of the inode: not to be set by touch
}

// file is one file of a watched directory.
type file struct {
	stamp  stamp
	reason reason
	claims []*claim
}

func stampOf(st *unix.Stat_t) stamp {
	return stamp{
		inode:    st.Ino,
		size:     st.Size,
		modified: time.Unix(st.Mtim.Unix()),
		changed:  time.Unix(st.Ctim.Unix()),
	}
}

// stat looks at a file without opening it; an error means that it is gone.
func stat(path string) (stamp, reason, error) {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return stamp{}, unread, &fs.PathError{Op: "lstat", Path: path, Err: err}
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		return stampOf(&st), accepted, nil
	case unix.S_IFLNK:
		return stampOf(&st), symlink, nil
	}
	return stampOf(&st), irregular, nil
}

// read reads the file at path, which stat found to be regular. It follows no symbolic link and waits for no pipe, in
// case the file has been replaced since.
func read(path string, seen uint64) *file {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return &file{reason: unread}
	}
	defer func() { _ = f.Close() }()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		return &file{reason: irregular}
	}
	out := &file{stamp: stampOf(&st)}
	data, err := io.ReadAll(io.LimitReader(f, maxRecord+1))
	switch {
	case err != nil:
		out.reason = unread
		return out
	case len(data) > maxRecord:
		out.reason = oversized
		return out
	}
	record, grants, why := parse(filepath.Base(path), data)
	out.reason = why
	record.File, record.Given = path, out.stamp.modified
	for _, g := range grants {
		own := record
		own.HostInterface = g.host
		out.claims = append(out.claims, &claim{addr: g.addr, pod: record.UID, record: &own, order: order{given: record.Given, seen: seen}})
	}
	return out
}

// rewritten says that other, a later look at the file, shows more than a change of mode or owner. If not, its claims
// stay as they are, void ones too.
func (f *file) rewritten(other *file) bool {
	return f.reason != other.reason || !f.stamp.modified.Equal(other.stamp.modified) ||
		!slices.EqualFunc(f.claims, other.claims, func(a, b *claim) bool { return a.addr == b.addr && a.pod == b.pod })
}
