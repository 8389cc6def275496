package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// buildDaemon builds the binary as the image has it: static, without the race detector.
func buildDaemon(ctx context.Context, root, dir string) (string, error) {
	binary := filepath.Join(dir, "pod2role")
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o", binary, ".")
	build.Dir = root
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if output, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building the daemon: %w\n%s", err, output)
	}
	return binary, nil
}

// machine says what was measured, and on what. Of a binary that was given nobody knows the commit.
func machine(ctx context.Context, given bool) string {
	parts := []string{fmt.Sprintf("%d CPUs", runtime.NumCPU())}
	if release, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		parts = append(parts, "Linux "+strings.TrimSpace(string(release)))
	}
	parts = append(parts, "Go "+strings.TrimPrefix(runtime.Version(), "go"))
	if given {
		parts = append(parts, "a binary of unknown origin")
	} else if revision, err := exec.CommandContext(ctx, "git", "describe", "--always", "--dirty", "--exclude", "*").Output(); err == nil {
		parts = append(parts, "commit "+strings.TrimSpace(string(revision)))
	}
	return strings.Join(parts, ", ")
}

// load is the machine's load average of the last minute, "?" where it cannot be read.
func load() string {
	line, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "?"
	}
	one, _, _ := strings.Cut(string(line), " ")
	return one
}

// wait waits for d or until ctx ends, which it reports as false.
func wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
