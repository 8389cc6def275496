package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// patch is one broken guard.
type patch struct {
	name   string // of the file, without .patch
	file   string // absolute
	breaks string
	dies   []target
}

// target names tests: a package as go test takes it, and an expression for its -run.
type target struct{ pkg, run string }

func (t target) String() string { return t.pkg + " " + t.run }

// readPatches reads the headers of all patches whose names contain only, and reports all mistakes at once.
func readPatches(dir, only string) ([]patch, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.patch"))
	if err != nil {
		return nil, err
	}
	var patches []patch
	var problems []error
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".patch")
		if !strings.Contains(name, only) {
			continue
		}
		content, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		p, err := parse(string(content))
		if err == nil {
			p.name = name
			p.file, err = filepath.Abs(file)
		}
		if err != nil {
			problems = append(problems, fmt.Errorf("%s: %w", file, err))
		}
		patches = append(patches, p)
	}
	return patches, errors.Join(problems...)
}

// parse reads the header, which ends where the diff begins.
func parse(content string) (patch, error) {
	var p patch
	diff := false
	for line := range strings.Lines(content) {
		if strings.HasPrefix(line, "diff ") || strings.HasPrefix(line, "--- ") {
			diff = true
			break
		}
		line = strings.TrimSpace(line)
		if text, ok := strings.CutPrefix(line, "# breaks:"); ok {
			p.breaks = strings.TrimSpace(text)
		} else if text, ok := strings.CutPrefix(line, "# dies:"); ok {
			fields := strings.Fields(text)
			if len(fields) != 2 || !strings.HasPrefix(fields[0], ".") {
				return p, fmt.Errorf("%q is not `# dies: ./PACKAGE TESTS`", line)
			}
			if _, err := regexp.Compile(fields[1]); err != nil {
				return p, fmt.Errorf("%q: %w", line, err)
			}
			p.dies = append(p.dies, target{pkg: fields[0], run: fields[1]})
		} else if line != "" {
			return p, fmt.Errorf("%q stands before the diff and is neither `# breaks:` nor `# dies:`", line)
		}
	}
	switch {
	case p.breaks == "":
		return p, errors.New("no line says `# breaks: …`")
	case len(p.dies) == 0:
		return p, errors.New("no line says `# dies: ./PACKAGE TESTS`")
	case !diff:
		return p, errors.New("there is no diff")
	}
	return p, nil
}
