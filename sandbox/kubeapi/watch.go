package kubeapi

import (
	"net/http"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// maxWatch is how long a watch lasts that asks for no time-out
// (kube-apiserver: --min-request-timeout, 30 minutes or more).
const maxWatch = 30 * time.Minute

// watcher is one open watch. Server.mu guards it.
type watcher struct {
	res       *resource
	match     func(Object) bool
	bookmarks bool
	queue     []event // not yet sent, in order
}

// event is one line of a watch. The object is not modified any more.
type event struct {
	kind watch.EventType
	obj  Object
	made time.Time // zero: part of what the watch began with, never held back by a lag
}

// offer queues what a change is to this watch: an object that comes to match is
// added, one that matches no longer is deleted.
func (wt *watcher) offer(c change, made time.Time) {
	if c.store != wt.res.store {
		return
	}
	was := c.before != nil && wt.match(c.before)
	is := c.after != nil && wt.match(c.after)
	switch {
	case was && is:
		wt.queue = append(wt.queue, event{kind: watch.Modified, obj: c.after, made: made})
	case is:
		wt.queue = append(wt.queue, event{kind: watch.Added, obj: c.after, made: made})
	case was:
		// The last state that matched, at the version of the change that ended it.
		last := c.before.DeepCopyObject().(Object)
		last.SetResourceVersion(strconv.FormatUint(c.version, 10))
		wt.queue = append(wt.queue, event{kind: watch.Deleted, obj: last, made: made})
	}
}

// bookmark queues the news that the watch has seen everything up to a version.
func (wt *watcher) bookmark(version uint64, made time.Time) {
	if !wt.bookmarks {
		return
	}
	mark := wt.res.empty()
	mark.SetResourceVersion(strconv.FormatUint(version, 10))
	wt.queue = append(wt.queue, event{kind: watch.Bookmark, obj: mark, made: made})
}

// watch answers with changes until the client leaves or the time is over.
func (s *Server) watch(w http.ResponseWriter, r *http.Request, enc encoding, to route) error {
	opts, err := s.options(r)
	if err != nil {
		return err
	}
	match, err := matcher(to, opts)
	if err != nil {
		return err
	}
	wt := &watcher{res: to.res, match: match, bookmarks: opts.AllowWatchBookmarks}
	refused := s.openWatch(wt, opts)
	if refused != nil && apierrors.IsBadRequest(refused) {
		return refused
	}
	defer s.closeWatch(wt)
	out, err := enc.stream(w)
	if err != nil {
		return nil // the client left, nobody to tell
	}
	if refused != nil {
		// Once a watch is let in, kube-apiserver tells errors as events.
		_ = out.send(watch.Error, statusOf(refused))
		return nil
	}
	lasts := maxWatch
	if opts.TimeoutSeconds != nil {
		lasts = time.Duration(*opts.TimeoutSeconds) * time.Second
	}
	s.deliver(r, out, wt, lasts)
	return nil
}

// openWatch registers a watch with what it begins with.
func (s *Server) openWatch(wt *watcher, opts *internalversion.ListOptions) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	version, err := parseVersion(opts.ResourceVersion)
	if err != nil {
		return err
	}
	initial := opts.SendInitialEvents != nil && *opts.SendInitialEvents
	switch {
	case initial && version > s.store.version:
		return errTooLarge(version, s.store.version)
	case initial, version == 0 && opts.SendInitialEvents == nil:
		for _, obj := range s.store.now().list(wt.res, wt.match) {
			wt.queue = append(wt.queue, event{kind: watch.Added, obj: obj})
		}
		if initial && wt.bookmarks {
			wt.bookmark(s.store.version, time.Time{})
			wt.queue[len(wt.queue)-1].obj.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
		}
	case version != 0:
		missed, ok := s.store.since(version)
		if !ok {
			return apierrors.NewResourceExpired("too old resource version: " + opts.ResourceVersion + " (" + strconv.FormatUint(s.store.compacted, 10) + ")")
		}
		for _, c := range missed {
			wt.offer(c, time.Time{})
		}
	}
	s.watchers[wt] = struct{}{}
	return nil
}

func (s *Server) closeWatch(wt *watcher) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.watchers, wt)
}

// deliver sends a watch's queue until it is over.
func (s *Server) deliver(r *http.Request, out *stream, wt *watcher, lasts time.Duration) {
	over := time.NewTimer(lasts)
	defer over.Stop()
	bookmarks := time.NewTicker(s.cfg.BookmarkInterval)
	defer bookmarks.Stop()
	due := time.NewTimer(lasts)
	defer due.Stop()
	for r.Context().Err() == nil {
		next, wait, changed := s.next(wt)
		if next != nil {
			if out.send(next.kind, out.object(wt.res, next.obj)) != nil {
				return // the client left
			}
			continue
		}
		if wait > 0 {
			due.Reset(wait)
		}
		select {
		case <-r.Context().Done():
		case <-over.C:
			return
		case <-bookmarks.C:
			s.mu.Lock()
			wt.bookmark(s.store.version, time.Now())
			s.mu.Unlock()
		case <-due.C:
		case <-changed:
		}
	}
}

// next takes what a watch may be sent now. If that is nothing, it tells how long
// a lag still holds back what there is (0: no lag does), and what to wait on else.
func (s *Server) next(wt *watcher) (next *event, wait time.Duration, changed <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.faults.frozen || s.faults.outage == Hang || len(wt.queue) == 0 {
		return nil, 0, s.changed
	}
	next = &wt.queue[0]
	if !next.made.IsZero() {
		if wait = s.faults.lag - time.Since(next.made); wait > 0 {
			return nil, wait, s.changed
		}
	}
	wt.queue = wt.queue[1:]
	return next, 0, nil
}
