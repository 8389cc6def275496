package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// process is a program that is measured.
type process struct {
	pid   int
	ended chan struct{} // closed when it has ended
	err   error         // why, once it has ended
	stop  context.CancelFunc
}

// start starts a program whose life ends with ctx or with this one's. It gets no environment but env; what it has to say
// goes to log, its standard output to out.
func start(ctx context.Context, in io.Reader, out, log io.Writer, env []string, name string, args ...string) (*process, error) {
	ctx, cancel := context.WithCancel(ctx)
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = env, in, out, log
	cmd.SysProcAttr = dieWithParent()
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 15 * time.Second
	if err := cmd.Start(); err != nil {
		cancel()
		return nil, fmt.Errorf("starting %s: %w", filepath.Base(name), err)
	}
	p := &process{pid: cmd.Process.Pid, ended: make(chan struct{}), stop: cancel}
	go func() {
		defer close(p.ended)
		p.err = cmd.Wait()
	}()
	return p, nil
}

// end ends the process and waits for it.
func (p *process) end() {
	p.stop()
	<-p.ended
}

// cpu is how much CPU time the process has used, in user space and in the kernel, all threads together.
func (p *process) cpu() (time.Duration, error) { return cpuOf(p.pid) }

// resident is what a process takes of the machine's memory, in bytes.
type resident struct {
	total     uint64
	anonymous uint64 // its own: heap, stacks
	file      uint64 // pages of the binary, which the kernel can drop and shares with other processes of it
}

func (p *process) resident() (resident, error) {
	var r resident
	err := p.read("status", map[string]*uint64{"VmRSS": &r.total, "RssAnon": &r.anonymous, "RssFile": &r.file})
	return r, err
}

// touched is how much memory the process has used since forget was called, by what the CPU marked, in bytes: what it
// needs to go on as it does.
func (p *process) touched() (uint64, error) {
	var n uint64
	return n, p.read("smaps_rollup", map[string]*uint64{"Referenced": &n})
}

// forget takes back the CPU's marks (proc_pid_clear_refs(5)).
func (p *process) forget() error {
	if err := os.WriteFile(p.file("clear_refs"), []byte("1"), 0); err != nil {
		return fmt.Errorf("taking back the marks on the memory of a process: %w", err)
	}
	return nil
}

func (p *process) file(name string) string {
	return filepath.Join("/proc", strconv.Itoa(p.pid), name)
}

// read reads sizes from a file that the kernel has on the process.
func (p *process) read(name string, sizes map[string]*uint64) error {
	text, err := os.ReadFile(p.file(name))
	if err == nil {
		err = readSizes(text, sizes)
	}
	if err != nil {
		return fmt.Errorf("reading the memory of a process: %w", err)
	}
	return nil
}

// readSizes reads lines such as "VmRSS:  1234 kB" (proc_pid_status(5)) into sizes, in bytes. All have to be there.
func readSizes(text []byte, sizes map[string]*uint64) error {
	found := 0
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(line, ":")
		to := sizes[name]
		if to == nil {
			continue
		}
		kibibytes, err := strconv.ParseUint(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(value), "kB")), 10, 64)
		if err != nil {
			return fmt.Errorf("the size %s: %w", name, err)
		}
		*to = kibibytes << 10
		found++
	}
	if found != len(sizes) {
		return errors.New("the kernel does not tell all of it")
	}
	return nil
}
