package cli

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"pod2role/attest"
	"pod2role/handover"
)

const (
	// turnRetry is how long to wait before the sockets are asked for, or opened, again.
	turnRetry = 500 * time.Millisecond
	// handoverTimeout bounds each step of a hand-over. The steps take milliseconds.
	handoverTimeout = 5 * time.Second
	// doorRetry is how long to wait before the door for a newcomer is opened again.
	doorRetry = 30 * time.Second
)

// The names under which the listening sockets are handed over.
const (
	appSocket     = "app"
	metricsSocket = "metrics"
	debugSocket   = "debug"
)

// errPredecessorGone says that the process which was to hand over has ended before.
var errPredecessorGone = errors.New("the process that served this node has ended")

// turn is what only one process of a node does at a time: accept connections, and keep the rules. A daemon without
// hand-over has its turn from the start to the end.
type turn struct {
	daemon *daemon
	run    func(what string, f func(context.Context) error) // starts a part of the daemon
	rest   context.Context                                  // of the parts
	answer func(net.Listener) error                         // serves pods until the daemon is told to stop

	gates       []*gate // none: there is no hand-over, or nothing was opened yet
	sockets     []handover.Socket
	key         []byte
	predecessor *handover.Predecessor // that gave the sockets; nil: none

	mu       sync.Mutex
	ours     bool   // it is this process's turn
	stopRule func() // ends the keeping of the rules, and returns when it has ended; nil: nobody keeps them
}

// begin has this process's turn begin, as soon as it can. It returns false if the daemon was told to stop before.
func (t *turn) begin(ctx context.Context) bool {
	for {
		err := t.attempt(ctx)
		switch {
		case err == nil:
			t.daemon.setWaiting("")
			t.keepRules()
			door, shut := context.WithCancel(t.rest)
			closed := make(chan struct{})
			t.run("handing over", func(context.Context) error {
				defer close(closed)
				return t.openDoor(door)
			})
			t.run("giving back", func(context.Context) error {
				<-ctx.Done()
				shut()
				<-closed // a door that opened later would be in the place of the predecessor's
				t.giveBack()
				return nil
			})
			return true
		case ctx.Err() != nil:
			return false
		}
		t.daemon.setWaiting(err.Error())
		if !errors.Is(err, errPredecessorGone) && !wait(ctx, turnRetry) {
			return false
		}
	}
}

// attempt takes over from the process that serves, or opens the sockets where there is none that could hand them over.
func (t *turn) attempt(ctx context.Context) error {
	p, err := handover.Find(ctx, t.daemon.config.HandoverDir, handoverTimeout)
	if err == nil {
		if err = t.takeFrom(ctx, p); err != nil {
			p.Close()
		}
		return err
	}
	if errors.Is(err, handover.ErrNobody) {
		err = nil
	}
	if t.gates != nil { // given by a process that did not live to see that this one serves
		if err == nil {
			t.set(true)
			_ = t.daemon.applyRules(ctx) // readiness tells
		}
		return err
	}
	l, failed := listen(ctx, t.daemon.config, nil)
	if failed != nil {
		return errors.Join(err, failed)
	}
	key, failed := newTokenKey()
	if failed == nil {
		failed = t.start(l, key)
	}
	if failed != nil {
		l.close()
		return failed
	}
	_ = t.daemon.applyRules(ctx) // readiness tells
	return nil
}

// takeFrom waits until this process is prepared, and then takes over. Until it returns nil, the predecessor serves.
func (t *turn) takeFrom(ctx context.Context, p *handover.Predecessor) error {
	t.daemon.setWaiting("another process serves this node until this one is prepared")
	select {
	case <-t.daemon.prepared:
	case <-p.Gone():
		return errPredecessorGone
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	given, key, err := p.Take(ctx)
	if err != nil {
		return fmt.Errorf("taking over: %w", err)
	}
	if t.gates == nil {
		l, err := listen(ctx, t.daemon.config, given)
		if err != nil {
			return fmt.Errorf("taking over: %w", err)
		}
		if err := t.start(l, key); err != nil {
			l.close()
			return err
		}
	} else {
		closeSockets(given) // they are here from the last attempt
		t.set(true)
	}
	err = t.daemon.applyRules(ctx)
	if err == nil {
		err = p.Serving(ctx)
	}
	if err != nil {
		t.set(false)
		return fmt.Errorf("taking over: %w", err)
	}
	t.predecessor = p
	t.daemon.log.Info("took over from the process that served this node")
	return nil
}

// start begins to answer on l, signing session tokens with key.
func (t *turn) start(l listeners, key []byte) error {
	if err := t.daemon.makeProxy(key); err != nil {
		return err
	}
	if t.daemon.config.HandoverDir != "" {
		t.key = key
		for _, s := range l.named() {
			tcp, ok := (*s.listener).(*net.TCPListener)
			if !ok {
				continue
			}
			g := newGate(tcp)
			*s.listener = g
			t.gates, t.sockets = append(t.gates, g), append(t.sockets, handover.Socket{Name: s.name, Listener: tcp})
		}
	}
	if err := attest.WithIngress(l.app); err != nil {
		t.daemon.log.WithError(err).Warn("the kernel does not tell by which interface connections come in")
	}
	t.mu.Lock()
	t.ours = true
	t.mu.Unlock()
	t.run("answering pods", func(context.Context) error { return t.answer(l.app) })
	t.run("serving the operator", func(ctx context.Context) error { return t.daemon.debug.Run(ctx, l.metrics, l.debug) })
	return nil
}

// set begins or ends this process's turn at accepting connections. When it has ended, those that are open are closed with
// their next answer, so that their clients come again to the other process.
func (t *turn) set(ours bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ours = ours
	t.daemon.proxy.CloseConnections(!ours)
	for _, g := range t.gates {
		g.set(ours)
	}
}

// keepRules has the rules kept, if there are any.
func (t *turn) keepRules() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.daemon.redirect == nil || t.stopRule != nil {
		return
	}
	ctx, cancel := context.WithCancel(t.rest)
	ended := make(chan struct{})
	t.stopRule = func() { cancel(); <-ended }
	t.run("keeping the rules", func(context.Context) error {
		defer close(ended)
		return t.daemon.keepRules(ctx)
	})
}

// leaveRules returns when this process touches the rules no more. It takes as long as a look at them.
func (t *turn) leaveRules() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.stopRule != nil {
		t.stopRule()
		t.stopRule = nil
	}
}

// end ends this process's turn: another one serves.
func (t *turn) end() {
	t.set(false)
	if t.predecessor != nil {
		if err := t.predecessor.Leave(); err != nil {
			t.daemon.log.WithError(err).Debug("the process before this one was not told that it handed on")
		}
	}
}

// resume takes back leaveRules and end.
func (t *turn) resume() {
	t.set(true)
	t.keepRules()
}

// giveBack ends this process's turn in favour of the one before, if that still runs and nobody else has the turn.
func (t *turn) giveBack() {
	if t.predecessor == nil {
		return
	}
	defer t.predecessor.Close()
	select {
	case <-t.predecessor.Gone():
		return
	default:
	}
	if t.isOurs() {
		t.leaveRules()
		t.set(false)
	}
}

// isOurs says whether it is this process's turn.
func (t *turn) isOurs() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.ours
}

// openDoor lets newcomers take over until ctx ends.
func (t *turn) openDoor(ctx context.Context) error {
	for {
		door, err := handover.NewDoor(handover.DoorConfig{
			Dir: t.daemon.config.HandoverDir, Sockets: t.sockets, Key: t.key,
			Pause: func(context.Context) error { t.leaveRules(); return nil }, Release: t.end, Resume: t.resume,
			Timeout: handoverTimeout, Log: t.daemon.log.WithField("part", "handover"),
		})
		if err != nil {
			return err
		}
		if err := door.Run(ctx); err != nil {
			t.daemon.log.WithError(err).Warn("no other process can take over for now")
		}
		if !wait(ctx, doorRetry) {
			return nil
		}
	}
}

func closeSockets(all []handover.Socket) {
	for _, s := range all {
		_ = s.Listener.Close() // the other process has it as well
	}
}

func newTokenKey() ([]byte, error) {
	key := make([]byte, 32)
	if _, err := rand.Read(key); err != nil {
		return nil, fmt.Errorf("making a key for session tokens: %w", err)
	}
	return key, nil
}
