package iptables

import (
	"errors"
	"fmt"
	"sync"
)

func newBackend(name string) (backend, error) {
	switch name {
	case "nftables":
		return nft{}, nil
	case "iptables":
		return &xtables{}, nil
	case "iptables-nft":
		return &xtables{kind: kindNft}, nil
	case "iptables-legacy":
		return &xtables{kind: kindLegacy}, nil
	}
	return &auto{now: nft{}, next: &xtables{}}, nil
}

// auto is the back end now until the kernel says that it does not support that, and then for good the one that is next.
// Whether a kernel takes our rules is known only when it is given them: nf_tables may be there without a reject in
// prerouting.
type auto struct {
	mu        sync.Mutex
	now, next backend // next nil: it is used already
}

func (a *auto) current() (now, next backend) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.now, a.next
}

func (a *auto) do(f func(backend) error) error {
	now, next := a.current()
	err := f(now)
	if next == nil || !errors.Is(err, ErrNotSupported) {
		return err
	}
	if other := f(next); other != nil {
		return fmt.Errorf("neither by nftables (%w) nor by iptables: %w", err, other)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.now, a.next = next, nil
	return nil
}

func (a *auto) name() string {
	now, _ := a.current()
	return now.name()
}

func (a *auto) apply(p plan) error { return a.do(func(b backend) error { return b.apply(p) }) }

func (a *auto) inspect(p plan) (found inspection, err error) {
	err = a.do(func(b backend) (err error) { found, err = b.inspect(p); return err })
	return found, err
}

func (a *auto) survey(p plan) (foreign []Rule, warnings []string, err error) {
	err = a.do(func(b backend) (err error) { foreign, warnings, err = b.survey(p); return err })
	return foreign, warnings, err
}

func (a *auto) watch() (w watcher, err error) {
	err = a.do(func(b backend) (err error) { w, err = b.watch(); return err })
	return w, err
}

func (a *auto) render(p plan) string {
	now, _ := a.current()
	return now.render(p)
}
