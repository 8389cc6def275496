package handover

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// checkPeer refuses a process of another user. Whoever could pose as the one or the other would get the pods' requests.
func checkPeer(c conn) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return fmt.Errorf("looking who is there: %w", err)
	}
	var peer *unix.Ucred
	var failed error
	if err := raw.Control(func(fd uintptr) { peer, failed = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); err != nil {
		return fmt.Errorf("looking who is there: %w", err)
	} else if failed != nil {
		return fmt.Errorf("looking who is there: %w", failed)
	}
	if int(peer.Uid) != os.Geteuid() {
		return fmt.Errorf("the other process (%d) is user %d's and not user %d's", peer.Pid, peer.Uid, os.Geteuid())
	}
	return nil
}

// listens refuses a file that is no listening socket.
func listens(f *os.File) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var on int
	var failed error
	if err := raw.Control(func(fd uintptr) { on, failed = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ACCEPTCONN) }); err != nil {
		return err
	} else if failed != nil {
		return failed
	}
	if on == 0 {
		return errors.New("it does not listen")
	}
	return nil
}
