package cli

import (
	"net/netip"
	"strings"
	"time"

	"pod2role/credentials"
	"pod2role/identity"
	"pod2role/mappings"
)

// life is one pod as it really is, or a process with an address that is no pod's; that one has no UID.
type life struct {
	uid, name, namespace string
	addr                 netip.Addr
	wishes               history[wish]
	recordable           bool      // the runtime writes a record of it that can be read
	recordedAt           time.Time // when that was last written
	torn                 bool      // for a while, it could not be read
	ended                bool
}

// wish is what a pod's annotations ask for; the zero value: no role.
type wish struct{ role, externalID, sessionName string }

func (w wish) annotations() map[string]string {
	keys, all := mappings.DefaultKeys(), map[string]string{}
	for key, value := range map[string]string{keys.Role: w.role, keys.ExternalID: w.externalID, keys.SessionName: w.sessionName} {
		if value != "" {
			all[key] = value
		}
	}
	return all
}

// key is what the wish comes to where it is allowed.
func (w wish) key() credentials.Key {
	key := credentials.Key{RoleARN: demoBaseARN + w.role, Name: w.sessionName, ExternalID: w.externalID}
	if key.Name == "" {
		key.Name = "pod2role-" + demoNode
	}
	return key
}

// permission is how the names of all roles begin that a namespace allows; empty: it allows none.
type permission string

func (p permission) annotations() map[string]string {
	if p == "" {
		return nil
	}
	return map[string]string{mappings.DefaultKeys().AllowedRoles: `["` + string(p) + `*"]`}
}

func (p permission) allows(w wish) bool {
	return p != "" && w.role != "" && strings.HasPrefix(w.role, string(p))
}

// span is something that was so: at the API server from a moment on; in the view from when it was shown there (zero:
// never) until something newer was shown (zero: not yet).
type span[T any] struct {
	what               T
	version            int
	from, shown, until time.Time
}

// during says that it was so at some moment between two, at the API server or in the view.
func (s *span[T]) during(from, to time.Time) bool {
	return !s.from.After(to) && (s.until.IsZero() || !s.until.Before(from))
}

// viewed says that the view has shown it since the given moment at least, and still does.
func (s *span[T]) viewed(since time.Time) bool {
	return !s.shown.IsZero() && !s.shown.After(since) && s.until.IsZero()
}

// history is all that was ever so of one object, in order.
type history[T any] []*span[T]

func (h *history[T]) add(what T, version int) {
	*h = append(*h, &span[T]{what: what, version: version, from: time.Now()})
}

// show takes in that the view shows a version of the object, or its end.
func (h *history[T]) show(version int, ended bool) {
	for i, s := range *h {
		if !s.until.IsZero() || s.version > version {
			continue
		}
		if last := i+1 == len(*h) || (*h)[i+1].version > version; ended || !last {
			s.until = time.Now()
		} else if s.shown.IsZero() {
			s.shown = time.Now()
		}
	}
}

// may says whether l may have the key at some moment between two, by what the API server or the view says then. n is
// locked.
func (n *virtualNode) may(l *life, key credentials.Key, from, to time.Time) bool {
	return n.ever(l, func(w *span[wish], p *span[permission]) bool {
		return w.during(from, to) && p.during(from, to) && p.what.allows(w.what) && w.what.key() == key
	})
}

// mayByView says whether the view has allowed l the key since a moment at least. n is locked.
func (n *virtualNode) mayByView(l *life, key credentials.Key, since time.Time) bool {
	return n.ever(l, func(w *span[wish], p *span[permission]) bool {
		return w.viewed(since) && p.viewed(since) && p.what.allows(w.what) && w.what.key() == key
	})
}

func (n *virtualNode) ever(l *life, match func(*span[wish], *span[permission]) bool) bool {
	permitted := n.permitted[l.namespace]
	if permitted == nil {
		return false
	}
	for _, w := range l.wishes {
		for _, p := range *permitted {
			if match(w, p) {
				return true
			}
		}
	}
	return false
}

// bear has the API server know a pod that is bound to the node.
func (n *virtualNode) bear(l *life, w wish, lag time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lives[l.uid] = l
	l.wishes.add(w, n.version+1)
	n.put(l, &mappings.Pod{UID: l.uid, Namespace: l.namespace, Name: l.name, Annotations: w.annotations()}, lag)
}

// edit changes a pod at the API server, if it is still there.
func (n *virtualNode) edit(l *life, lag time.Duration, f func(*mappings.Pod)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if o, ok := n.api[l.uid]; ok {
		pod := *o.pod
		f(&pod)
		n.put(l, &pod, lag)
	}
}

// annotate changes what a pod asks for.
func (n *virtualNode) annotate(l *life, w wish, lag time.Duration) {
	n.edit(l, lag, func(pod *mappings.Pod) {
		pod.Annotations = w.annotations()
		l.wishes.add(w, n.version+1)
	})
}

// remove deletes a pod from the API server.
func (n *virtualNode) remove(l *life, lag time.Duration) {
	n.locked(func() { n.put(l, nil, lag) })
}

// give gives l the address that has been free for longest; false: there is none.
func (n *virtualNode) give(l *life) bool {
	given := false
	n.locked(func() {
		if given = len(n.free) > 0; given {
			l.addr, n.free = n.free[0], n.free[1:]
			n.has[l.addr] = l
			n.note(l)
		}
	})
	n.daemon.wake()
	return given
}

// note writes the runtime's record of l. n is locked.
func (n *virtualNode) note(l *life) {
	if l.recordable && n.has[l.addr] == l {
		n.records[l.addr] = identity.Record{UID: l.uid, Namespace: l.namespace, Name: l.name, Interface: "veth-" + l.uid}
		l.recordedAt = time.Now()
	}
}

// tear makes the record of l unreadable for a while.
func (n *virtualNode) tear(l *life, length time.Duration) {
	n.locked(func() {
		if !l.recordable || n.has[l.addr] != l {
			return
		}
		l.torn = true
		n.unnote(l)
		time.AfterFunc(length, func() {
			n.locked(func() { n.note(l) })
			n.daemon.wake()
		})
	})
	n.daemon.wake()
}

// unnote removes the record of l. n is locked.
func (n *virtualNode) unnote(l *life) {
	if _, ok := n.records[l.addr]; ok {
		delete(n.records, l.addr)
		n.taken[l.addr] = taking{l.uid, time.Now()}
	}
}

// takeBack takes l's address back. It may be given again after a while.
func (n *virtualNode) takeBack(l *life, after time.Duration) {
	n.locked(func() {
		n.unnote(l)
		delete(n.has, l.addr)
		n.ends[l.addr] = time.Now()
	})
	n.daemon.wake()
	// The kernel and the index have times, the API server whole seconds: a claim from the second of an end does not
	// count.
	if n.attested {
		after += time.Second
	}
	time.AfterFunc(after, func() { n.locked(func() { n.free = append(n.free, l.addr) }) })
}
