package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
)

// outcome is what became of a patch.
type outcome string

const (
	killed   outcome = "killed"
	survived outcome = "SURVIVED"   // a test that should fail passes
	broken   outcome = "BROKEN"     // the patch or its header is wrong
	unjudged outcome = "not judged" // its tests are skipped on this machine
)

// judge tells what becomes of p, and why if it is not killed.
func judge(ctx context.Context, t *tree, base *baseline, p patch) (outcome, string) {
	if err := t.make(); err != nil {
		return broken, err.Error()
	}
	for _, d := range p.dies {
		switch r := base.of(ctx, t, d); {
		case r.aborted:
			return broken, fmt.Sprintf("without the patch, %s does not compile or start:\n%s", d.pkg, r.output)
		case r.count("fail") > 0:
			return broken, fmt.Sprintf("%s fails without the patch:\n%s", d, r.output)
		case r.count("skip") > 0:
			return unjudged, fmt.Sprintf("%s is skipped on this machine:\n%s", d, r.output)
		case r.count("pass") == 0:
			return broken, fmt.Sprintf("%s names no test:\n%s", d, r.output)
		}
	}
	if err := t.apply(ctx, p); err != nil {
		return broken, err.Error()
	}
	defer t.restore(ctx, p)
	for _, d := range p.dies {
		switch r := t.test(ctx, d); {
		case r.aborted:
			return broken, fmt.Sprintf("with the patch, %s does not compile or start:\n%s", d.pkg, r.output)
		case r.count("fail") == 0:
			return survived, fmt.Sprintf("%s still passes", d)
		}
	}
	return killed, ""
}

// baseline is how the tests that patches name do on the whole tree. Those of a package run together, once.
type baseline struct {
	packages map[string]*whole // :: package -> its named tests
}

type whole struct {
	runs   []string
	once   sync.Once
	result result
}

func newBaseline(patches []patch) *baseline {
	b := &baseline{packages: map[string]*whole{}}
	for _, p := range patches {
		for _, d := range p.dies {
			if w, ok := b.packages[d.pkg]; !ok {
				b.packages[d.pkg] = &whole{runs: []string{d.run}}
			} else if !slices.Contains(w.runs, d.run) {
				w.runs = append(w.runs, d.run)
			}
		}
	}
	return b
}

// of returns how the tests of d do. The tree must be whole; it is used only if the package's turn has not come before.
func (b *baseline) of(ctx context.Context, t *tree, d target) result {
	w := b.packages[d.pkg]
	w.once.Do(func() { w.result = t.test(ctx, target{pkg: d.pkg, run: strings.Join(w.runs, "|")}) })
	r := result{aborted: w.result.aborted, output: w.result.output}
	for name, action := range w.result.tests {
		if matches(d.run, name) {
			r.add(name, action)
		}
	}
	return r
}
