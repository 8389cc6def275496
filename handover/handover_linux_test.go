package handover

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

const patience = 30 * time.Second // only a failure takes that long

// house is a process with a door.
type house struct {
	t    *testing.T
	dir  string
	app  *net.TCPListener
	stop func() // ends Run and waits for it

	mu      sync.Mutex
	said    []string
	changed chan struct{}
	noPause error // what Pause returns
}

func newHouse(t *testing.T, timeout time.Duration) *house {
	t.Helper()
	return houseIn(t, shortDir(t), timeout)
}

func houseIn(t *testing.T, dir string, timeout time.Duration) *house {
	t.Helper()
	h := &house{t: t, dir: dir, app: listenTCP(t), changed: make(chan struct{})}
	door, err := NewDoor(DoorConfig{
		Dir: dir, Sockets: []Socket{{"app", h.app}}, Key: []byte("secret"), Timeout: timeout,
		Pause:   func(context.Context) error { return h.say("pause") },
		Release: func() { _ = h.say("release") },
		Resume:  func() { _ = h.say("resume") },
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := door.Run(ctx); err != nil {
			t.Errorf("the door: %v", err)
		}
	})
	h.stop = func() { cancel(); running.Wait() }
	t.Cleanup(h.stop)
	return h
}

func (h *house) say(what string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.said = append(h.said, what)
	close(h.changed)
	h.changed = make(chan struct{})
	return h.noPause
}

// expect waits until exactly that was said.
func (h *house) expect(want ...string) {
	h.t.Helper()
	timeout := time.After(patience)
	for {
		h.mu.Lock()
		said, changed := slices.Clone(h.said), h.changed
		h.mu.Unlock()
		if slices.Equal(said, want) {
			return
		}
		select {
		case <-changed:
		case <-timeout:
			h.t.Fatalf("the callbacks were %q, want %q", said, want)
		}
	}
}

// find knocks until somebody opens.
func find(t *testing.T, dir string) *Predecessor {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		p, err := Find(ctx, dir, patience)
		if errors.Is(err, ErrNobody) && ctx.Err() == nil {
			continue // the door is about to be opened
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(p.Close)
		return p
	}
}

func takeAll(t *testing.T, p *Predecessor) []Socket {
	t.Helper()
	got, key, err := p.Take(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeSockets(got) })
	if string(key) != "secret" || len(got) != 1 || got[0].Name != "app" {
		t.Fatalf("got %v and the key %q", got, key)
	}
	return got
}

func listenTCP(t *testing.T) *net.TCPListener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l.(*net.TCPListener)
}

// shortDir is a directory whose name leaves room for a socket's.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "door") //nolint:usetesting // its names may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// greets checks that a connection to the address is answered by l.
func greets(t *testing.T, l *net.TCPListener, to string) {
	t.Helper()
	client, err := net.Dial("tcp", to)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if err := l.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	server, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	_ = server.Close()
}

func TestTheSocketsPassFromOneProcessToTheNext(t *testing.T) {
	h := newHouse(t, 0)
	p := find(t, h.dir)
	h.expect()
	got := takeAll(t, p)
	h.expect("pause")
	addr := h.app.Addr().String()
	if got[0].Listener.Addr().String() != addr {
		t.Fatalf("got a socket at %s, want %s", got[0].Listener.Addr(), addr)
	}
	greets(t, got[0].Listener, addr) // while both have it
	greets(t, h.app, addr)
	if err := p.Serving(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.expect("pause", "release")

	waiting, err := net.Dial("tcp", addr) // before the first process ends, and accepted afterwards
	if err != nil {
		t.Fatal(err)
	}
	defer waiting.Close()
	h.stop()
	if err := h.app.Close(); err != nil {
		t.Fatal(err)
	}
	if c, err := got[0].Listener.Accept(); err != nil {
		t.Error(err)
	} else {
		_ = c.Close()
	}
	h.expect("pause", "release")
}

// A socket that blocks would hold its process's Close until the next connection.
func TestNeitherProcessGetsASocketThatBlocks(t *testing.T) {
	h := newHouse(t, 0)
	got := takeAll(t, find(t, h.dir))
	for name, l := range map[string]*net.TCPListener{"the one that hands over": h.app, "the newcomer": got[0].Listener} {
		raw, err := l.SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		_ = raw.Control(func(fd uintptr) {
			if flags, err := unix.FcntlInt(fd, unix.F_GETFL, 0); err != nil || flags&unix.O_NONBLOCK == 0 {
				t.Errorf("%s has a socket that blocks (%v)", name, err)
			}
		})
	}
}

func TestANewcomerThatLeavesAtAnyStepLeavesTheOtherAsItWas(t *testing.T) {
	h := newHouse(t, 0)
	var want []string
	for _, steps := range [][]string{{}, {"take"}, {"take", "serving"}} {
		p := find(t, h.dir)
		for _, s := range steps {
			switch s {
			case "take":
				takeAll(t, p)
				want = append(want, "pause")
			case "serving":
				if err := p.Serving(t.Context()); err != nil {
					t.Fatal(err)
				}
				want = append(want, "release")
				h.expect(want...)
				l, err := publish(h.dir) // as the newcomer does that serves
				if err != nil {
					t.Fatal(err)
				}
				defer l.Close()
			}
		}
		p.Close()
		if len(steps) > 0 {
			want = append(want, "resume")
		}
		h.expect(want...)
	}
	// The door leads to the first process again.
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		p, err := Find(ctx, h.dir, 100*time.Millisecond)
		if err != nil && ctx.Err() == nil {
			continue // still the newcomer's, which nobody serves
		}
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		takeAll(t, p)
		return
	}
}

func TestANewcomerThatHasHandedOnIsNotReplaced(t *testing.T) {
	h := newHouse(t, 0)
	p := find(t, h.dir)
	takeAll(t, p)
	if err := p.Serving(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := p.Leave(); err != nil {
		t.Fatal(err)
	}
	p.Close()
	h.stop() // when it has heard of it, or not: neither may make it resume
	h.expect("pause", "release")
}

func TestOfTwoNewcomersOneTakesOver(t *testing.T) {
	h := newHouse(t, 0)
	first, second := find(t, h.dir), find(t, h.dir)
	takeAll(t, first)
	if _, _, err := second.Take(t.Context()); err == nil || !strings.Contains(err.Error(), "already") {
		t.Errorf("the second one got %v, want that another one is taking over", err)
	}
	if err := first.Serving(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.expect("pause", "release")
}

func TestAProcessThatCannotMakeRoomKeepsItsTurn(t *testing.T) {
	h := newHouse(t, 0)
	h.mu.Lock()
	h.noPause = errors.New("the rules are busy")
	h.mu.Unlock()
	if _, _, err := find(t, h.dir).Take(t.Context()); err == nil || !strings.Contains(err.Error(), "the rules are busy") {
		t.Errorf("got %v, want the reason", err)
	}
	h.expect("pause", "resume")
}

func TestANewcomerThatFallsSilentIsGivenUp(t *testing.T) {
	h := newHouse(t, 300*time.Millisecond)
	p := find(t, h.dir)
	takeAll(t, p)
	h.expect("pause", "resume")
	if err := p.Serving(t.Context()); err == nil {
		t.Error("it was told that it serves alone, after it had been given up")
	}
	h.expect("pause", "resume")
}

func TestANewcomerMayTakeItsTimeToGetReady(t *testing.T) {
	h := newHouse(t, 300*time.Millisecond)
	p := find(t, h.dir)
	select {
	case <-p.Gone():
		t.Error("it was turned away")
	case <-time.After(500 * time.Millisecond):
	}
	takeAll(t, p)
	h.expect("pause", "resume")
}

func TestAProcessThatHangsIsNotWaitedForAndIsNotNobody(t *testing.T) {
	dir := shortDir(t)
	l, err := publish(dir) // and accepts nothing
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if _, err := Find(t.Context(), dir, 50*time.Millisecond); err == nil || errors.Is(err, ErrNobody) {
		t.Errorf("got %v, want that it does not answer", err)
	}
}

func TestWhereNobodyIsThereIsNobody(t *testing.T) {
	dir := shortDir(t)
	if _, err := Find(t.Context(), dir, 0); !errors.Is(err, ErrNobody) {
		t.Errorf("an empty directory: got %v, want ErrNobody", err)
	}
	l, err := publish(dir)
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	if _, err := Find(t.Context(), dir, 0); !errors.Is(err, ErrNobody) {
		t.Errorf("a door that was left behind: got %v, want ErrNobody", err)
	}
	h := houseIn(t, dir, 0)
	find(t, dir)
	h.stop()
	if _, err := Find(t.Context(), dir, 0); !errors.Is(err, ErrNobody) {
		t.Errorf("after its end: got %v, want ErrNobody", err)
	}
}

func TestTheEndOfTheOtherProcessIsSeen(t *testing.T) {
	h := newHouse(t, 0)
	p := find(t, h.dir)
	h.stop()
	select {
	case <-p.Gone():
	case <-time.After(patience):
		t.Fatal("it was not seen")
	}
	if _, _, err := p.Take(t.Context()); err == nil {
		t.Error("got sockets of a process that is gone")
	}
}

// raw is a peer that says what the test tells it to.
func raw(t *testing.T, dir string) conn {
	t.Helper()
	find(t, dir).Close()
	c, err := net.Dial("unixpacket", filepath.Join(dir, doorName))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetReadDeadline(time.Now().Add(patience))
	return conn{c.(*net.UnixConn)}
}

func TestWhatIsNotUnderstoodChangesNothing(t *testing.T) {
	for name, tt := range map[string]struct {
		packets []string
		want    string // of the last answer's reason
	}{
		"a newer version":   {[]string{`{"protocol":"pod2role-handover","version":2,"step":"hello"}`}, "version 2"},
		"another protocol":  {[]string{`{"protocol":"x","version":1,"step":"hello"}`}, `"x"`},
		"no message":        {[]string{"GET / HTTP/1.1"}, "no message"},
		"no hello":          {[]string{`{"protocol":"pod2role-handover","version":1,"step":"take"}`}, `"take"`},
		"nothing to take":   {[]string{`{"protocol":"pod2role-handover","version":1,"step":"hello"}`, `{"protocol":"pod2role-handover","version":1,"step":"serving"}`}, `"serving"`},
		"too long":          {[]string{`{"protocol":"pod2role-handover","version":1,"step":"hello","reason":"` + strings.Repeat("x", maxMessage) + `"}`}, "more than fits"},
		"sockets out of it": {[]string{`{"protocol":"pod2role-handover","version":1,"step":"hello","sockets":["a"]}`}, "named 1"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t, 0)
			c := raw(t, h.dir)
			var got message
			for _, p := range tt.packets {
				if _, err := c.Write([]byte(p)); err != nil {
					t.Fatal(err)
				}
				var err error
				if got, _, err = c.receive(); err != nil {
					t.Fatal(err)
				}
			}
			if got.Step != refused || !strings.Contains(got.Reason, tt.want) {
				t.Errorf("got %q, %q; want a refusal with %q", got.Step, got.Reason, tt.want)
			}
			takeAll(t, find(t, h.dir))
			h.expect("pause")
		})
	}
}

func TestAnOlderProcessIsNotNobody(t *testing.T) {
	dir := shortDir(t)
	l, err := publish(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		if c, err := l.AcceptUnix(); err == nil {
			defer c.Close()
			_, _ = c.Read(make([]byte, maxMessage))
			_, _ = c.Write([]byte(`{"protocol":"pod2role-handover","version":0,"step":"welcome"}`))
			_, _ = io.Copy(io.Discard, c)
		}
	}()
	if _, err := Find(t.Context(), dir, patience); err == nil || errors.Is(err, ErrNobody) || !strings.Contains(err.Error(), "version 0") {
		t.Errorf("got %v, want that it speaks version 0", err)
	}
}

func TestOnlyListeningTCPSocketsAreTaken(t *testing.T) {
	udp, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer udp.Close()
	unixSocket, err := publish(shortDir(t))
	if err != nil {
		t.Fatal(err)
	}
	defer unixSocket.Close()
	l := listenTCP(t)
	client, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for name, f := range map[string]interface{ File() (*os.File, error) }{
		"UDP": udp, "a unix socket": unixSocket, "a connection": client.(*net.TCPConn),
	} {
		file, err := f.File()
		if err != nil {
			t.Fatal(err)
		}
		if got, err := socketsOf([]string{"app"}, []*os.File{file}); err == nil {
			t.Errorf("%s was taken as %v", name, got)
		}
		if err := file.Close(); !errors.Is(err, os.ErrClosed) {
			t.Errorf("%s was left open", name)
		}
	}
}

func TestTheDirectoryIsNobodyElses(t *testing.T) {
	parent := shortDir(t)
	mode := func(name string, mode os.FileMode) string {
		dir := filepath.Join(parent, name)
		if err := errors.Join(os.Mkdir(dir, 0o700), os.Chmod(dir, mode)); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	link, file := filepath.Join(parent, "link"), filepath.Join(parent, "file")
	if err := errors.Join(os.Symlink(mode("target", 0o700), link), os.WriteFile(file, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, dir string
		ok        bool
	}{
		{"one of its own", mode("own", 0o700), true},
		{"none yet", filepath.Join(parent, "new", "one"), true},
		{"one that others may enter", mode("open", 0o755), true},
		{"one that the group may write to", mode("group", 0o770), false},
		{"one that everybody may write to", mode("tmp", 0o777|os.ModeSticky), false},
		{"a link", link, false},
		{"a file", file, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := prepare(tt.dir)
			if (err == nil) != tt.ok {
				t.Fatalf("got %v, want ok %t", err, tt.ok)
			}
			if err != nil {
				return
			}
			info, err := os.Stat(tt.dir)
			if err != nil || info.Mode().Perm() != 0o700 {
				t.Errorf("its mode is %v (%v), want 0700", info.Mode(), err)
			}
		})
	}
}

// A thread that is another user connects; its credentials are what the kernel notes.
func TestAnotherUserIsTurnedAway(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to be somebody else for a moment")
	}
	path := filepath.Join(shortDir(t), "open")
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Net: "unixpacket", Name: path})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := errors.Join(os.Chmod(filepath.Dir(path), 0o755), os.Chmod(path, 0o777)); err != nil {
		t.Fatal(err)
	}
	for uid, want := range map[int]bool{0: true, 65534: false} {
		failed := make(chan error, 1)
		go func() {
			runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
			fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				failed <- err
				return
			}
			if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, ^uintptr(0), uintptr(uid), ^uintptr(0)); errno != 0 {
				failed <- errno
				return
			}
			failed <- unix.Connect(fd, &unix.SockaddrUnix{Name: path})
		}()
		if err := <-failed; err != nil {
			t.Fatal(err)
		}
		c, err := l.AcceptUnix()
		if err != nil {
			t.Fatal(err)
		}
		if err := checkPeer(conn{c}); (err == nil) != want {
			t.Errorf("user %d: got %v, want let in %t", uid, err, want)
		}
		_ = c.Close()
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"protocol":"pod2role-handover","version":1,"step":"sockets","sockets":["app"],"key":"c2VjcmV0"}`))
	f.Add([]byte(`{"protocol":"pod2role-handover","version":2}`))
	f.Add([]byte(`[]`))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := decode(b)
		if err != nil && !cmp.Equal(m, message{}) {
			t.Errorf("%q is refused, and read as %+v", b, m)
		}
		if err == nil && (m.Protocol != protocol || m.Version != version || len(m.Sockets) > maxSockets) {
			t.Errorf("accepted %q as %+v", b, m)
		}
	})
}
