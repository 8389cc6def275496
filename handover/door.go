package handover

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
)

// DoorConfig is what a Door needs.
type DoorConfig struct {
	Dir     string   // where newcomers look
	Sockets []Socket // what they get; they stay this process's as well
	Key     []byte   // a secret to go on with, at most 1 KiB

	// Pause ends what two processes must not do at once, and returns when it has ended. Its error refuses the newcomer.
	Pause func(context.Context) error
	// Release is called when the newcomer serves: no connection is to be accepted any more.
	Release func()
	// Resume takes back Pause, and Release if that was called. It may be called at any time between Pause and the end of
	// Run.
	Resume func()

	// Timeout is how long a newcomer may take for each of its steps, except for getting ready; zero: 10 s.
	Timeout time.Duration
	Log     *logrus.Entry // nil: discard
}

// Door lets a newcomer take over. It is run once.
type Door struct {
	cfg DoorConfig

	mu    sync.Mutex
	taken bool // a newcomer is taking over, or has
}

// NewDoor returns a Door that is shut.
func NewDoor(cfg DoorConfig) (*Door, error) {
	var problems []error
	if cfg.Dir == "" || cfg.Pause == nil || cfg.Release == nil || cfg.Resume == nil {
		problems = append(problems, errors.New("handing over needs a directory, Pause, Release and Resume"))
	}
	if len(cfg.Sockets) == 0 || len(cfg.Sockets) > maxSockets || len(cfg.Key) > 1<<10 {
		problems = append(problems, fmt.Errorf("%d sockets and a key of %d bytes cannot be handed over", len(cfg.Sockets), len(cfg.Key)))
	}
	if len(problems) > 0 {
		return nil, errors.Join(problems...)
	}
	if cfg.Timeout <= 0 {
		cfg.Timeout = 10 * time.Second
	}
	if cfg.Log == nil {
		logger := logrus.New()
		logger.SetOutput(io.Discard)
		cfg.Log = logrus.NewEntry(logger)
	}
	return &Door{cfg: cfg}, nil
}

// Run opens the door until ctx ends, in the place of one that another process had there. A newcomer that is taking over
// at that moment may finish. Its error is that the door could not be opened.
func (d *Door) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		if err := d.open(ctx); err != nil {
			return err
		}
	}
	return nil
}

// open opens the door, and lets newcomers in until ctx ends or one has left that had taken over. That one had put a door of
// its own there.
func (d *Door) open(ctx context.Context) error {
	l, err := publish(d.cfg.Dir)
	if err != nil {
		return err
	}
	inside, leave := context.WithCancel(ctx)
	defer context.AfterFunc(inside, func() { _ = l.Close() })()
	var guests sync.WaitGroup
	defer guests.Wait()
	defer leave()
	for {
		accepted, err := l.AcceptUnix()
		switch {
		case inside.Err() != nil:
			if err == nil {
				_ = accepted.Close()
			}
			return nil
		case err != nil:
			return errors.Join(fmt.Errorf("letting a newcomer in: %w", err), l.Close())
		}
		guests.Go(func() {
			if d.welcome(inside, conn{accepted}) {
				leave()
			}
		})
	}
}

// welcome serves one newcomer to its end. It reports whether that had taken over and has left again.
func (d *Door) welcome(ctx context.Context, c conn) (left bool) {
	defer func() { _ = c.Close() }()
	if err := d.greet(c); err != nil {
		d.turnAway(c, err)
		return false
	}
	// It may take its time to get ready. When this process ends, it sees the connection break and acts upon it.
	stop := context.AfterFunc(ctx, func() { _ = c.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	_ = c.SetReadDeadline(time.Time{})
	if ctx.Err() != nil {
		return false
	}
	if err := expect(c, take); err != nil {
		if ctx.Err() == nil && !errors.Is(err, io.EOF) {
			d.turnAway(c, err)
		}
		return false
	}
	stop() // what has begun is finished
	d.mu.Lock()
	busy := d.taken
	d.taken = true
	d.mu.Unlock()
	if busy {
		d.turnAway(c, errors.New("another process is taking over already"))
		return false
	}
	return d.handOver(ctx, c)
}

func (d *Door) greet(c conn) error {
	if err := checkPeer(c); err != nil {
		return err
	}
	if err := c.SetReadDeadline(time.Now().Add(d.cfg.Timeout)); err != nil {
		return err
	}
	if err := expect(c, hello); err != nil {
		return err
	}
	return c.send(message{Step: welcome}, d.cfg.Timeout)
}

// handOver hands over, and watches the newcomer from then on. It reports whether this process has resumed after it had
// been released.
func (d *Door) handOver(ctx context.Context, c conn) (left bool) {
	log := d.cfg.Log
	log.Info("another process asks for the sockets")
	resume := func() {
		d.cfg.Resume()
		d.mu.Lock()
		d.taken = false
		d.mu.Unlock()
	}
	if err := d.give(context.WithoutCancel(ctx), c); err != nil {
		resume()
		d.turnAway(c, err)
		log.WithError(err).Warn("the hand-over failed; this process goes on")
		return false
	}
	d.cfg.Release()
	log.Info("another process serves; this one waits for its end")
	err := c.send(message{Step: released}, d.cfg.Timeout)
	_ = c.SetReadDeadline(time.Time{})
	stop := context.AfterFunc(ctx, func() { _ = c.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	if err == nil {
		err = expect(c, gone)
	}
	switch {
	case ctx.Err() != nil:
		return false
	case err == nil:
		log.Info("the other process has handed on in turn")
		<-ctx.Done()
		return false
	}
	log.WithError(err).Warn("the process that had taken over has left; this one serves again")
	resume()
	return true
}

// give gives the newcomer everything, and returns nil when it says that it serves.
func (d *Door) give(ctx context.Context, c conn) error {
	pausing, cancel := context.WithTimeout(ctx, d.cfg.Timeout)
	defer cancel()
	if err := d.cfg.Pause(pausing); err != nil {
		return fmt.Errorf("making room for another process: %w", err)
	}
	names, files, err := files(d.cfg.Sockets)
	if err != nil {
		return err
	}
	defer closeAll(files)
	descriptors := make([]int, len(files))
	for i, f := range files {
		descriptors[i] = int(f.Fd()) // of a socket that does not block, which stays so
	}
	if err := c.send(message{Step: sockets, Sockets: names, Key: d.cfg.Key}, d.cfg.Timeout, descriptors...); err != nil {
		return err
	}
	if err := c.SetReadDeadline(time.Now().Add(d.cfg.Timeout)); err != nil {
		return err
	}
	return expect(c, serving)
}

// expect receives the message that must come next.
func expect(c conn, want step) error {
	m, files, err := c.receive()
	closeAll(files) // a newcomer has nothing to give
	if err == nil && m.Step != want {
		err = fmt.Errorf("the other process said %q where %q was due", m.Step, want)
	}
	return err
}

// turnAway tells the newcomer why.
func (d *Door) turnAway(c conn, why error) {
	_ = c.send(message{Step: refused, Reason: why.Error()}, time.Second) // it may be gone
	d.cfg.Log.WithError(why).Debug("another process was turned away")
}
