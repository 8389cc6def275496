package main

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// testTimeout is for one package's named tests; a test that the patch makes hang has failed as well.
const testTimeout = "2m"

// tree is a copy of the module that may be broken. One patch at a time.
type tree struct {
	from string // the module's root
	dir  string // the copy
	race bool
}

// make copies the tree, unless that was done before.
func (t *tree) make() error {
	if _, err := os.Stat(t.dir); err == nil {
		return nil
	}
	return filepath.WalkDir(t.from, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		within, err := filepath.Rel(t.from, name)
		if err != nil {
			return err
		}
		to := filepath.Join(t.dir, within)
		switch {
		case d.IsDir() && within != "." && (slices.Contains([]string{".git", ".cache", "dist", "bin"}, within) || d.Name() == "node_modules"):
			return fs.SkipDir
		case d.IsDir():
			return os.MkdirAll(to, 0o755)
		case !d.Type().IsRegular():
			return nil
		}
		content, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		return os.WriteFile(to, content, info.Mode().Perm())
	})
}

// apply applies a patch exactly where it says: a patch whose surroundings have moved has to be looked at.
func (t *tree) apply(ctx context.Context, p patch) error {
	return t.git(ctx, "apply", p.file)
}

// restore takes the patch back. If that fails, the copy goes, and the next patch gets a new one.
func (t *tree) restore(ctx context.Context, p patch) {
	if err := t.git(context.WithoutCancel(ctx), "apply", "--reverse", p.file); err != nil {
		_ = os.RemoveAll(t.dir)
	}
}

func (t *tree) git(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Dir = t.dir
	// Below a repository, git apply would pass over files that are not in it, in silence.
	cmd.Env = slices.DeleteFunc(cmd.Environ(), func(v string) bool { return strings.HasPrefix(v, "GIT_") })
	cmd.Env = append(cmd.Env, "GIT_CEILING_DIRECTORIES="+filepath.Dir(t.dir))
	if said, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("git %s: %w\n%s", strings.Join(args, " "), err, bytes.TrimSpace(said))
	}
	return nil
}

// test runs the tests of d in the tree as it is.
func (t *tree) test(ctx context.Context, d target) result {
	args := []string{"test", "-json", "-vet=off", "-count=1", "-timeout=" + testTimeout, "-run", d.run}
	if t.race {
		args = append(args, "-race")
	}
	cmd := exec.CommandContext(ctx, "go", append(args, d.pkg)...)
	cmd.Dir = t.dir
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // go test passes it on to the tests
	cmd.WaitDelay = 30 * time.Second
	events, err := cmd.CombinedOutput()
	r := read(events)
	r.aborted = r.aborted || (err != nil && r.count("fail") == 0)
	return r
}
