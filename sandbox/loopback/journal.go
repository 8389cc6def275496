package loopback

import (
	"context"
	"fmt"
	"slices"
	"sync"
)

// Journal keeps the latest entries of a server in the order of their arrival. It is safe for concurrent use.
type Journal[T any] struct {
	max int

	mu      sync.Mutex
	entries []T // the latest ones, at most max
	first   int // number of entries[0]; numbers are never used twice
	waiters map[*waiter[T]]struct{}
}

type waiter[T any] struct {
	match func(T) bool
	left  int    // matching entries still to come
	got   chan T // buffered, receives once
}

// NewJournal returns a journal that keeps the latest maxEntries entries (at least one).
func NewJournal[T any](maxEntries int) *Journal[T] {
	return &Journal[T]{max: max(1, maxEntries), waiters: make(map[*waiter[T]]struct{})}
}

// Add appends an entry, wakes whoever waited for it, and returns its number for [Journal.Update].
func (j *Journal[T]) Add(entry T) int {
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.entries) == j.max {
		// A quarter at once, so that a full journal does not move its entries for each new one.
		drop := max(1, j.max/4)
		j.entries = slices.Delete(j.entries, 0, drop)
		j.first += drop
	}
	j.entries = append(j.entries, entry)
	for w := range j.waiters {
		if !w.match(entry) {
			continue
		}
		if w.left--; w.left == 0 {
			w.got <- entry
			delete(j.waiters, w)
		}
	}
	return j.first + len(j.entries) - 1
}

// Update changes the entry of that number, if the journal still has it.
func (j *Journal[T]) Update(number int, change func(*T)) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if i := number - j.first; i >= 0 && i < len(j.entries) {
		change(&j.entries[i])
	}
}

// All returns a copy of the entries that the journal still has, oldest first.
func (j *Journal[T]) All() []T {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.entries)
}

// Reset forgets all entries. Waits go on, and count from here what is still missing to them.
func (j *Journal[T]) Reset() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.first += len(j.entries)
	j.entries = nil
}

// Wait returns the n-th entry (counted from 1, over those that the journal has and those to come) that match accepts;
// nil accepts each. It returns as soon as the entry arrives, with the entry as it was then, or with ctx's error. match
// must not call the journal.
func (j *Journal[T]) Wait(ctx context.Context, n int, match func(T) bool) (T, error) {
	if match == nil {
		match = func(T) bool { return true }
	}
	w := &waiter[T]{match: match, left: max(1, n), got: make(chan T, 1)}
	j.mu.Lock()
	for _, entry := range j.entries {
		if match(entry) {
			if w.left--; w.left == 0 {
				j.mu.Unlock()
				return entry, nil
			}
		}
	}
	j.waiters[w] = struct{}{}
	j.mu.Unlock()

	select {
	case entry := <-w.got:
		return entry, nil
	case <-ctx.Done():
		j.mu.Lock()
		defer j.mu.Unlock()
		delete(j.waiters, w)
		var none T
		return none, fmt.Errorf("waiting for %d more of %d: %w", w.left, max(1, n), ctx.Err())
	}
}
