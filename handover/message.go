package handover

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"time"
)

// protocol and version stand in every message. The version rises only if an older process would misunderstand a newer
// one; what can be ignored is added without. A process that is told another version changes nothing.
const (
	protocol = "pod2role-handover"
	version  = 1
)

const (
	maxMessage = 4 << 10
	maxSockets = 8
)

// step is what a message says: see the package documentation.
type step string

const (
	hello    step = "hello"
	welcome  step = "welcome"
	take     step = "take"
	sockets  step = "sockets"
	serving  step = "serving"
	released step = "released"
	gone     step = "gone"
	refused  step = "refused" // the answer to what is not granted, with a reason
)

// message is the head of a packet; file descriptors may go with it.
type message struct {
	Protocol string   `json:"protocol"`
	Version  int      `json:"version"`
	Step     step     `json:"step"`
	Sockets  []string `json:"sockets,omitempty"` // the names of the file descriptors, in their order
	Key      []byte   `json:"key,omitempty"`
	Reason   string   `json:"reason,omitempty"`
}

// decode reads a message. That it speaks another version is an error as well.
func decode(b []byte) (message, error) {
	var m message
	if err := json.Unmarshal(b, &m); err != nil {
		return message{}, errors.New("the other process sent something that is no message") // not what it was: it may hold the key
	}
	if m.Protocol != protocol {
		return message{}, fmt.Errorf("the other process speaks %q and not %q", m.Protocol, protocol)
	}
	if m.Version != version {
		return message{}, fmt.Errorf("the other process speaks version %d of the protocol, and this one version %d", m.Version, version)
	}
	if len(m.Sockets) > maxSockets {
		return message{}, fmt.Errorf("the other process speaks of %d sockets", len(m.Sockets))
	}
	return m, nil
}

// conn is a connection between the two processes; packets keep their bounds (SOCK_SEQPACKET).
type conn struct{ *net.UnixConn }

// send sends one packet within the time-out.
func (c conn) send(m message, timeout time.Duration, descriptors ...int) error {
	m.Protocol, m.Version = protocol, version
	b, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("sending %q: %w", m.Step, err)
	}
	if err := c.SetWriteDeadline(time.Now().Add(timeout)); err != nil {
		return fmt.Errorf("sending %q: %w", m.Step, err)
	}
	var rights []byte
	if len(descriptors) > 0 {
		rights = syscall.UnixRights(descriptors...)
	}
	if _, _, err := c.WriteMsgUnix(b, rights, nil); err != nil {
		return fmt.Errorf("sending %q: %w", m.Step, err)
	}
	return nil
}

// receive returns the next packet, whenever it comes, unless a read deadline is set. The files are the caller's to close.
func (c conn) receive() (message, []*os.File, error) {
	b, rights := make([]byte, maxMessage), make([]byte, syscall.CmsgSpace(4*maxSockets))
	n, rn, flags, _, err := c.ReadMsgUnix(b, rights)
	if err != nil {
		return message{}, nil, fmt.Errorf("waiting for the other process: %w", err)
	}
	files, err := filesOf(rights[:rn])
	if err == nil && flags&(syscall.MSG_TRUNC|syscall.MSG_CTRUNC) != 0 {
		err = errors.New("the other process sent more than fits")
	}
	var m message
	if err == nil {
		m, err = decode(b[:n])
	}
	if err == nil && len(files) != len(m.Sockets) {
		err = fmt.Errorf("the other process sent %d sockets and named %d", len(files), len(m.Sockets))
	}
	if err != nil {
		closeAll(files)
		return message{}, nil, err
	}
	return m, files, nil
}

// filesOf returns the files that came with a packet.
func filesOf(rights []byte) ([]*os.File, error) {
	control, err := syscall.ParseSocketControlMessage(rights)
	if err != nil {
		return nil, fmt.Errorf("reading what came with the message: %w", err)
	}
	var files []*os.File
	for i := range control {
		descriptors, err := syscall.ParseUnixRights(&control[i])
		if err != nil {
			continue // not file descriptors
		}
		for _, fd := range descriptors {
			files = append(files, os.NewFile(uintptr(fd), "handed over"))
		}
	}
	return files, nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		_ = f.Close() // nothing was written to it
	}
}
