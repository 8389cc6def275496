package cli

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"time"

	"pod2role/identity"
	"pod2role/mappings"
)

// Lookup implements identity.Records, as does TakenBack.
func (n *virtualNode) Lookup(addr netip.Addr) (identity.Record, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	record, ok := n.records[addr]
	return record, ok
}

func (n *virtualNode) TakenBack(addr netip.Addr) (string, time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, stands := n.records[addr]; stands {
		return "", time.Time{}
	}
	return n.taken[addr].uid, n.taken[addr].at
}

// Pod implements identity.View, as do the following.
func (n *virtualNode) Pod(uid string) *mappings.Pod {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.view[uid].pod
}

func (n *virtualNode) Pods() (all []*mappings.Pod) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, o := range n.view {
		all = append(all, o.pod)
	}
	return all
}

func (n *virtualNode) PodsAt(addr netip.Addr) (all []*mappings.Pod) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, o := range n.view {
		if !o.pod.Finished && slices.Contains(o.pod.Addrs, addr) {
			all = append(all, o.pod)
		}
	}
	return all
}

func (n *virtualNode) Namespace(name string) *mappings.Namespace {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.viewNS[name].ns
}

func (n *virtualNode) Synced() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.synced
}

func (n *virtualNode) ReadPod(ctx context.Context, namespace, name string) (*mappings.Pod, error) {
	pods, err := n.read(ctx, func(p *mappings.Pod) bool { return p.Namespace == namespace && p.Name == name })
	if err != nil || len(pods) == 0 {
		return nil, err
	}
	return pods[0], nil
}

func (n *virtualNode) ReadAddr(ctx context.Context, addr netip.Addr) ([]*mappings.Pod, error) {
	return n.read(ctx, func(p *mappings.Pod) bool { return !p.Finished && slices.Contains(p.Addrs, addr) })
}

// read takes what match finds at the API server into the view, with the time that takes on both ways.
func (n *virtualNode) read(ctx context.Context, match func(*mappings.Pod) bool) ([]*mappings.Pod, error) {
	wait := func() error {
		n.mu.Lock()
		d := time.Duration(n.version%7+1) * 11 * time.Millisecond
		n.mu.Unlock()
		select {
		case <-time.After(d):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if err := wait(); err != nil {
		return nil, err
	}
	found := map[*life]object{}
	var err error
	n.locked(func() {
		if n.away {
			err = errors.New("connection refused")
			return
		}
		for uid, o := range n.api {
			if match(o.pod) {
				found[n.lives[uid]] = o
			}
		}
	})
	if err == nil {
		err = wait() // the answer is under way, and ages
	}
	if err != nil {
		return nil, err
	}
	var pods []*mappings.Pod
	for l, o := range found {
		believed := o.pod
		if n.Synced() { // before the first list nothing can be compared, and nothing is kept
			n.show(l, o)
			believed = n.Pod(l.uid)
		}
		if believed != nil && match(believed) {
			pods = append(pods, believed)
		}
	}
	return pods, nil
}

// attest is the kernel: it knows behind which interface an address is, and when it was last taken back.
func (n *virtualNode) attest(c identity.Claim) (identity.Attestation, string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	has := n.has[c.Addr]
	switch {
	case c.Recorded && (has == nil || c.Interface != "veth-"+has.uid):
		return identity.Refuted, "another interface"
	case !c.Recorded && c.Ready.Before(n.ends[c.Addr]):
		return identity.Refuted, "too old"
	}
	return identity.Confirmed, "fine"
}

// known says which source knew all that is needed to answer l, and has known it for as long as a request that waited
// for the given time may take to find out; empty: none. n is locked.
func (n *virtualNode) known(l *life, waited time.Duration) string {
	now := time.Now()
	_, recorded := n.records[l.addr]
	recorded = recorded && n.has[l.addr] == l
	needed := func(objects map[string]object, least time.Duration) bool {
		o, ok := objects[l.uid]
		if !ok || o.pod.Finished || now.Sub(o.since) < least {
			return false
		}
		if recorded {
			return now.Sub(l.recordedAt) >= least
		}
		return len(o.pod.Addrs) > 0 && n.taken[l.addr].uid != l.uid
	}
	switch {
	case !n.synced || now.Sub(n.syncedAt) < time.Millisecond || n.viewNS[l.namespace].ns == nil:
		return ""
	case needed(n.view, time.Millisecond):
		return "the view"
	case waited >= 5*time.Second && !n.away && now.Sub(n.backAt) > 3*time.Second && needed(n.api, 3*time.Second):
		return "the API server"
	}
	return ""
}
