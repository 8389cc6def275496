package attest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	// receiveBuffer is what the netlink socket may queue, in bytes: a node that starts or ends all of its pods at once
	// sends some hundred kilobytes.
	receiveBuffer = 4 << 20
	// maxQueued is more than the number of messages that the kernel queues in that space.
	maxQueued = 1 << 14
	// maxMessage is more than the kernel puts into one message.
	maxMessage = 1 << 16
)

// notifications is the subscription to what the kernel tells. One socket for all of it keeps its order. Several read
// from it: who has the lock reads, and applies what it has read.
type notifications struct {
	mu      sync.Mutex
	file    *os.File // nil: there is no subscription
	control syscall.RawConn
	buffer  []byte
}

// subscribe opens the subscription.
func (n *notifications) subscribe() error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("opening a netlink socket: %w", err)
	}
	file := os.NewFile(uintptr(fd), "netlink")
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, receiveBuffer) != nil {
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, receiveBuffer) // as much as the system allows
	}
	groups := uint32(unix.RTMGRP_LINK | unix.RTMGRP_NEIGH | unix.RTMGRP_IPV4_ROUTE | unix.RTMGRP_IPV6_ROUTE)
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: groups}); err != nil {
		_ = file.Close()
		return fmt.Errorf("subscribing to the kernel's notifications: %w", err)
	}
	control, err := file.SyscallConn()
	if err != nil {
		_ = file.Close()
		return fmt.Errorf("subscribing to the kernel's notifications: %w", err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.file, n.control = file, control
	if n.buffer == nil {
		n.buffer = make([]byte, maxMessage)
	}
	return nil
}

// close ends the subscription; whoever waits for it is woken.
func (n *notifications) close() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.file != nil {
		_ = n.file.Close()
		n.file = nil
	}
}

// CatchUp takes in all that the kernel had told when it was called, which may not have been read yet. It makes one
// system call where there is nothing, and is to be called once for each connection.
func (a *Attest) CatchUp() {
	n := &a.notifications
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.file == nil {
		return
	}
	var err error
	if n.control.Control(func(fd uintptr) { _, err = a.drain(int(fd)) }) != nil || err == nil {
		return
	}
	a.lose()
	_ = n.file.Close() // Run waits on it, and subscribes anew
	n.file = nil
}

// drain reads and applies what is queued: until there is no more, or as much has been read as can have been queued at
// the beginning. It needs the lock.
func (a *Attest) drain(fd int) (more bool, err error) {
	buffer := a.notifications.buffer
	for range maxQueued {
		n, from, err := unix.Recvfrom(fd, buffer, unix.MSG_DONTWAIT|unix.MSG_TRUNC)
		switch {
		case errors.Is(err, unix.EAGAIN):
			return false, nil
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil: // ENOBUFS: more came than the socket may queue
			return false, fmt.Errorf("reading the kernel's notifications: %w", err)
		case n > len(buffer):
			return false, fmt.Errorf("reading the kernel's notifications: one has %d bytes", n)
		}
		if sender, ok := from.(*unix.SockaddrNetlink); !ok || sender.Pid != 0 {
			continue // not the kernel
		}
		if err := a.apply(buffer[:n]); err != nil {
			return false, fmt.Errorf("reading the kernel's notifications: %w", err)
		}
	}
	return true, nil
}

// receive applies what comes until ctx ends or something is lost.
func (a *Attest) receive(ctx context.Context) error {
	n := &a.notifications
	n.mu.Lock()
	control := n.control
	n.mu.Unlock()
	defer context.AfterFunc(ctx, n.close)()
	var failed error
	err := control.Read(func(fd uintptr) bool {
		for more := true; more; {
			n.mu.Lock()
			more, failed = a.drain(int(fd))
			n.mu.Unlock()
		}
		return failed != nil // else it is called again when something comes
	})
	return errors.Join(failed, err)
}
