package testnet

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// inside tells the re-executed test binary that it is in its own user namespace already.
const inside = "POD2ROLE_TESTNET_INSIDE"

// Main runs a package's tests where they may make network namespaces, and returns the exit code for os.Exit. A process
// that may not runs itself again as root of a new user namespace. Where the kernel forbids that as well, Main says so on
// standard error and runs the tests anyway: those that need a namespace skip.
//
//	func TestMain(m *testing.M) { os.Exit(testnet.Main(m)) }
func Main(m *testing.M) int {
	if os.Getenv(inside) != "" || mayMakeNamespaces() {
		return m.Run()
	}
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Args[0] = os.Args[0]
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), inside+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
		Pdeathsig:   syscall.SIGKILL,
	}
	err := cmd.Run()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		return max(exit.ExitCode(), 1) // -1: ended by a signal
	case err != nil:
		fmt.Fprintf(os.Stderr, "testnet: entering a user namespace: %v\n", err)
		return m.Run()
	}
	return 0
}

// mayMakeNamespaces reports whether the process holds CAP_SYS_ADMIN, which unshare(2) asks for.
func mayMakeNamespaces() bool {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return false
	}
	return data[0].Effective&(1<<unix.CAP_SYS_ADMIN) != 0
}
