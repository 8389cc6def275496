package main

import (
	"context"
	"fmt"
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
		case r.failed:
			return broken, fmt.Sprintf("%s fails without the patch:\n%s", d, r.output)
		case r.skipped > 0:
			return unjudged, fmt.Sprintf("%s is skipped on this machine:\n%s", d, r.output)
		case r.passed == 0:
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
		case !r.failed:
			return survived, fmt.Sprintf("%s still passes", d)
		}
	}
	return killed, ""
}

// baseline remembers how tests do on the whole tree: several patches name the same.
type baseline struct {
	mu      sync.Mutex
	results map[target]func(context.Context, *tree) result
}

func newBaseline() *baseline {
	return &baseline{results: map[target]func(context.Context, *tree) result{}}
}

// of runs the tests of d in t, which must be whole, unless that was done before.
func (b *baseline) of(ctx context.Context, t *tree, d target) result {
	b.mu.Lock()
	once, ok := b.results[d]
	if !ok {
		var run sync.Once
		var r result
		once = func(ctx context.Context, t *tree) result {
			run.Do(func() { r = t.test(ctx, d) })
			return r
		}
		b.results[d] = once
	}
	b.mu.Unlock()
	return once(ctx, t)
}
