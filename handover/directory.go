package handover

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"
)

// doorName is the socket's name in the directory.
const doorName = "pod2role.sock"

// prepare makes the directory, and sees that nobody else can enter it. One of our own that others may read, as kubelet
// makes a hostPath, is closed; one that others may write to is refused, because they may have put something in it.
func prepare(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("making the directory of the hand-over: %w", err)
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return fmt.Errorf("looking at the directory of the hand-over: %w", err)
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !info.IsDir():
		return fmt.Errorf("the directory of the hand-over, %q, is none", dir)
	case !ok || int(owner.Uid) != os.Geteuid():
		return fmt.Errorf("the directory of the hand-over, %q, is not this user's own", dir)
	case info.Mode().Perm()&0o022 != 0:
		return fmt.Errorf("the directory of the hand-over, %q, can be written to by others (%s): remove it", dir, info.Mode().Perm())
	case info.Mode().Perm() != 0o700:
		if err := os.Chmod(dir, 0o700); err != nil { //nolint:gosec // a directory
			return fmt.Errorf("closing the directory of the hand-over: %w", err)
		}
	}
	return nil
}

// publish opens a socket in the directory in the place of whatever was there: the name leads from one process to the next
// without a moment in which it leads to none. A door that a process has left behind is closed, which whoever knocks sees.
func publish(dir string) (*net.UnixListener, error) {
	if err := prepare(dir); err != nil {
		return nil, err
	}
	building := filepath.Join(dir, fmt.Sprintf(".%d", os.Getpid()))
	if err := os.Remove(building); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("opening the door for a newcomer: %w", err)
	}
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Net: "unixpacket", Name: building})
	if err != nil {
		return nil, fmt.Errorf("opening the door for a newcomer: %w", err)
	}
	l.SetUnlinkOnClose(false) // the name may be another's by then
	if err := os.Rename(building, filepath.Join(dir, doorName)); err != nil {
		return nil, errors.Join(fmt.Errorf("opening the door for a newcomer: %w", err), l.Close())
	}
	return l, nil
}
