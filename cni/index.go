package cni

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/sirupsen/logrus"
)

// Config is what an Index needs.
type Config struct {
	// Dirs are absolute paths of the directories in which libcni may keep its records. They need not exist: each may
	// come, go and come again. One that is another by a second name is left out.
	Dirs []string

	// Rescan is how often the directories are read without being told to (default 30 s): a safety net, since what
	// happens to the files is known from inotify. It takes at most a hundredth of the time, however many files.
	Rescan time.Duration

	// OnChange is called after an address changed hands, from one goroutine; it must not block. nil: nobody asks.
	OnChange func()

	Log        *logrus.Entry         // nil: discard
	Registerer prometheus.Registerer // nil: no metrics
}

// Index knows which pod was given which address. It is safe for concurrent use.
type Index struct {
	cfg     Config
	log     *logrus.Entry
	metrics metrics
	ready   chan struct{} // closed after the first look at all directories

	dirs  []*directory
	looks uint64 // how often the disk was looked at: order.seen; used by Run only

	mu     sync.RWMutex // never held while the disk is looked at
	all    addresses
	taken  takings
	status []DirStatus // of dirs, without what follows from their files
}

// New returns an Index that knows nothing until Run.
func New(cfg Config) (*Index, error) {
	x := &Index{cfg: cfg, log: cfg.Log, ready: make(chan struct{}), all: addresses{}, taken: takings{}}
	if x.log == nil {
		logger := logrus.New()
		logger.SetOutput(io.Discard)
		x.log = logrus.NewEntry(logger)
	}
	if x.cfg.Rescan <= 0 {
		x.cfg.Rescan = 30 * time.Second
	}
	var problems []error
	for _, path := range cfg.Dirs {
		if !filepath.IsAbs(path) {
			problems = append(problems, fmt.Errorf("the CNI results directory %q is not an absolute path", path))
			continue
		}
		path = filepath.Clean(path)
		if !slices.ContainsFunc(x.dirs, func(d *directory) bool { return d.path == path }) {
			x.dirs = append(x.dirs, &directory{path: path, files: map[string]*file{}})
			x.status = append(x.status, DirStatus{Dir: path})
		}
	}
	if len(problems) > 0 {
		return nil, errors.Join(problems...)
	}
	if err := x.register(cfg.Registerer); err != nil {
		return nil, err
	}
	return x, nil
}

// Ready is closed once all directories have been looked at; one that is absent or unreadable counts.
func (x *Index) Ready() <-chan struct{} { return x.ready }

// Lookup returns the record of the pod that addr was given to. false: no pod is known to have it. It does not allocate.
func (x *Index) Lookup(addr netip.Addr) (Record, bool) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	c := x.all.lookup(addr.Unmap())
	if c == nil || c.pod == "" {
		return Record{}, false
	}
	return *c.record, true
}

// LookupInterface returns a record of the only pod that was given the interface whose host's end has this name. false:
// there is none, or more than one. It does not allocate.
func (x *Index) LookupInterface(name string) (Record, bool) {
	if name == "" { // records that do not tell say so
		return Record{}, false
	}
	x.mu.RLock()
	defer x.mu.RUnlock()
	var found *claim
	for addr := range x.all {
		c := x.all.lookup(addr)
		switch {
		case c == nil || c.pod == "" || c.record.HostInterface != name && !slices.Contains(c.record.HostInterfaces, name):
		case found == nil:
			found = c
		case found.pod != c.pod:
			return Record{}, false
		}
	}
	if found == nil {
		return Record{}, false
	}
	return *found.record, true
}

// Records returns the records that Lookup answers from, sorted by path. For a record with several addresses the
// HostInterface is that of the first.
func (x *Index) Records() []Record {
	x.mu.RLock()
	defer x.mu.RUnlock()
	var out []Record
	for _, d := range x.dirs {
		for _, f := range d.files {
			i := slices.IndexFunc(f.claims, func(c *claim) bool { return c.record != nil && x.all.lookup(c.addr) == c })
			if i >= 0 && f.claims[i].pod != "" {
				out = append(out, *f.claims[i].record)
			}
		}
	}
	slices.SortFunc(out, func(a, b Record) int {
		return strings.Compare(a.File, b.File)
	})
	return out
}

// DirStatus is what is known of one directory.
type DirStatus struct {
	Dir     string         `json:"dir"`
	Watched string         `json:"watched"`           // Dir, or its nearest ancestor while it is absent; "": nothing
	Error   string         `json:"error,omitempty"`   // why the directory answers nothing
	Files   int            `json:"files"`             // all files in it
	Skipped map[string]int `json:"skipped,omitempty"` // :: reason -> files that are not used
}

// Status is the state of an Index for the operator.
type Status struct {
	Addresses int         `json:"addresses"` // addresses that Lookup answers
	Dirs      []DirStatus `json:"dirs"`
}

// Status returns the state of the index.
func (x *Index) Status() Status {
	x.mu.RLock()
	defer x.mu.RUnlock()
	var out Status
	for addr := range x.all {
		if c := x.all.lookup(addr); c != nil && c.pod != "" {
			out.Addresses++
		}
	}
	for i, s := range x.status {
		d := x.dirs[i]
		s.Files, s.Skipped = len(d.files), map[string]int{}
		for _, f := range d.files {
			if f.reason != accepted {
				s.Skipped[string(f.reason)]++
			}
		}
		out.Dirs = append(out.Dirs, s)
	}
	return out
}

// Run follows the directories until ctx ends. Without inotify the index answers nothing and tries again: a record that
// is not followed could outlive its address.
func (x *Index) Run(ctx context.Context) error {
	for {
		err := x.follow(ctx)
		if ctx.Err() != nil {
			return nil
		}
		x.log.WithError(err).Error("CNI records cannot be followed and are not used")
		x.lose(err)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(x.cfg.Rescan):
		}
	}
}
