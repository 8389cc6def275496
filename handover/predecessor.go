package handover

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// ErrNobody means that there is no process to take over from.
var ErrNobody = errors.New("no other process is there to take over from")

// A Predecessor is the process that is to be replaced.
type Predecessor struct {
	conn    conn
	timeout time.Duration
	packets chan packet
	gone    chan struct{} // closed when the connection is broken
	failure error         // why; set before gone is closed
	closing chan struct{}
	once    sync.Once
	reader  sync.WaitGroup
}

type packet struct {
	message
	files []*os.File
}

// Find returns the process whose door is in the directory; each step of its may take the time-out (zero: 10 s). ErrNobody:
// there is none. Any other error: there is one, or may be, with which no hand-over is possible now.
func Find(ctx context.Context, dir string, timeout time.Duration) (*Predecessor, error) {
	if timeout <= 0 {
		timeout = 10 * time.Second
	}
	if err := prepare(dir); err != nil {
		return nil, err
	}
	dialing, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	dialed, err := new(net.Dialer).DialContext(dialing, "unixpacket", filepath.Join(dir, doorName))
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) {
		return nil, ErrNobody
	} else if err != nil {
		return nil, fmt.Errorf("looking for the process to take over from: %w", err)
	}
	c := conn{dialed.(*net.UnixConn)}
	if err := checkPeer(c); err != nil {
		return nil, errors.Join(fmt.Errorf("looking for the process to take over from: %w", err), c.Close())
	}
	p := &Predecessor{conn: c, timeout: timeout, packets: make(chan packet), gone: make(chan struct{}), closing: make(chan struct{})}
	p.reader.Go(p.read)
	if _, err := p.ask(ctx, hello, welcome); err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

// Gone is closed when the process has ended, or wants to hear no more.
func (p *Predecessor) Gone() <-chan struct{} { return p.gone }

// Take asks for the sockets and the key. The sockets are the caller's: it may accept connections at once, has to say
// Serving soon, and closes them if it does not want them.
func (p *Predecessor) Take(ctx context.Context) (all []Socket, key []byte, err error) {
	got, err := p.ask(ctx, take, sockets)
	if err != nil {
		return nil, nil, err
	}
	all, err = socketsOf(got.Sockets, got.files)
	return all, got.Key, err
}

// Serving says that the caller accepts connections. When it returns nil, the predecessor has stopped to do so. After an
// error, both may: the caller has to stop.
func (p *Predecessor) Serving(ctx context.Context) error {
	_, err := p.ask(ctx, serving, released)
	return err
}

// Leave says that the caller has handed on, so that the predecessor is not to come back when the caller ends.
func (p *Predecessor) Leave() error { return p.conn.send(message{Step: gone}, p.timeout) }

// Close ends the connection. A predecessor that had been released, and still runs, serves again.
func (p *Predecessor) Close() {
	p.once.Do(func() { close(p.closing) })
	_ = p.conn.Close()
	p.reader.Wait()
}

// ask sends one step and waits for the answer to it.
func (p *Predecessor) ask(ctx context.Context, question, want step) (packet, error) {
	asking, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	if err := p.conn.send(message{Step: question}, p.timeout); err != nil {
		return packet{}, err
	}
	select {
	case got := <-p.packets:
		if got.Step == want {
			return got, nil
		}
		closeAll(got.files)
		if got.Step == refused {
			return packet{}, fmt.Errorf("the other process refuses: %s", got.Reason)
		}
		return packet{}, fmt.Errorf("the other process said %q where %q was due", got.Step, want)
	case <-p.gone:
		return packet{}, p.failure
	case <-asking.Done():
		if ctx.Err() == nil {
			return packet{}, fmt.Errorf("the other process did not answer %q within %s", question, p.timeout)
		}
		return packet{}, context.Cause(ctx)
	}
}

// read receives until the connection breaks, which it would not notice otherwise.
func (p *Predecessor) read() {
	defer close(p.gone)
	for {
		m, files, err := p.conn.receive()
		if err != nil {
			p.failure = err
			return
		}
		select {
		case p.packets <- packet{m, files}:
		case <-p.closing:
			closeAll(files)
			p.failure = net.ErrClosed
			return
		}
	}
}
