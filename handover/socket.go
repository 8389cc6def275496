package handover

import (
	"errors"
	"fmt"
	"net"
	"os"
)

// Socket is a listening socket that is handed over.
type Socket struct {
	Name     string // what the two processes call it
	Listener *net.TCPListener
}

// files returns duplicates of the sockets' file descriptors, which the caller closes.
func files(all []Socket) (names []string, out []*os.File, err error) {
	for _, s := range all {
		f, err := s.Listener.File()
		if err != nil {
			closeAll(out)
			return nil, nil, fmt.Errorf("duplicating the socket %q: %w", s.Name, err)
		}
		names, out = append(names, s.Name), append(out, f)
	}
	return names, out, nil
}

// socketsOf makes sockets of the files, which it closes.
func socketsOf(names []string, files []*os.File) ([]Socket, error) {
	defer closeAll(files)
	var out []Socket
	for i, f := range files {
		l, err := listenerOf(f)
		if err != nil {
			closeSockets(out)
			return nil, fmt.Errorf("taking the socket %q: %w", names[i], err)
		}
		out = append(out, Socket{names[i], l})
	}
	return out, nil
}

func listenerOf(f *os.File) (*net.TCPListener, error) {
	if err := listens(f); err != nil {
		return nil, err
	}
	l, err := net.FileListener(f)
	if err != nil {
		return nil, err
	}
	tcp, ok := l.(*net.TCPListener)
	if !ok {
		return nil, errors.Join(fmt.Errorf("it is one of %s and not of TCP", l.Addr().Network()), l.Close())
	}
	return tcp, nil
}

func closeSockets(all []Socket) {
	for _, s := range all {
		_ = s.Listener.Close() // the other process has it as well
	}
}
