package main

import (
	"fmt"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// dieWithParent ends a process when its parent dies of whatever cause.
func dieWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

// cpuOf reads the CPU clock of another process, whose number clock_getcpuclockid(3) makes of its ID. Unlike the ticks in
// /proc it counts nanoseconds.
func cpuOf(pid int) (time.Duration, error) {
	const cpuClockSched = 2
	var t unix.Timespec
	if err := unix.ClockGettime(^int32(pid)<<3|cpuClockSched, &t); err != nil {
		return 0, fmt.Errorf("reading the CPU time of process %d: %w", pid, err)
	}
	return time.Duration(t.Nano()), nil
}

// portLater leaves the choice of a connection's own port to connect(2), which may take one that is in use towards another
// destination, or was until a second ago: a port for each connection would soon be more than there are.
func portLater(_, _ string, c syscall.RawConn) error {
	var failed error
	if err := c.Control(func(fd uintptr) { failed = unix.SetsockoptInt(int(fd), unix.SOL_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1) }); err != nil {
		return err
	}
	return failed
}
