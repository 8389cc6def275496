package cnirecord

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// loopbackNetwork is what containerd calls the network of its own loopback records.
const loopbackNetwork = "cni-loopback"

// Config says how a node's runtime keeps its records.
type Config struct {
	Dir      string // such as /var/lib/cni/results; made with the first record
	Network  string // the network's name, default "kubenet"
	Ifname   string // the interface's name inside pods, default "eth0"
	Version  string // of the CNI specification: "0.3.1", "0.4.0", "1.0.0" (the default) or "1.1.0"
	Shape    Shape  // which plugin made the results
	Loopback bool   // keep a second record per pod of its loopback interface, as containerd does
	Rename   bool   // write beside and rename, which libcni does not
}

// Writer writes and removes records. It keeps no state but its Config, and is safe for concurrent use.
type Writer struct{ cfg Config }

// New returns a writer. Nothing is written before Add.
func New(cfg Config) *Writer {
	cfg.Network = cmp.Or(cfg.Network, "kubenet")
	cfg.Ifname = cmp.Or(cfg.Ifname, "eth0")
	cfg.Version = cmp.Or(cfg.Version, "1.0.0")
	return &Writer{cfg: cfg}
}

// Path is where the record of an attachment is.
func (w *Writer) Path(a Attachment) string {
	return w.path(a.complete(), w.cfg.Network, w.cfg.Ifname)
}

func (w *Writer) path(a Attachment, network, ifname string) string {
	return filepath.Join(w.cfg.Dir, fmt.Sprintf("%s-%s-%s", network, a.Sandbox, ifname))
}

// Add writes the record of an address that was given, over one of the same sandbox.
func (w *Writer) Add(a Attachment) error {
	a = a.complete()
	if err := w.addLoopback(a); err != nil {
		return err
	}
	data, err := w.marshal(a)
	if err != nil {
		return err
	}
	return w.write(w.Path(a), data)
}

// AddTorn writes the first n bytes of the record and stops there, as the runtime may be seen to, or may have crashed
// (n = 0: an empty file). The returned func writes the rest to the same file.
func (w *Writer) AddTorn(a Attachment, n int) (finish func() error, err error) {
	a = a.complete()
	data, err := w.marshal(a)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(w.cfg.Dir, 0o700); err != nil {
		return nil, err
	}
	n = min(max(n, 0), len(data))
	if err := os.WriteFile(w.Path(a), data[:n], 0o600); err != nil {
		return nil, err
	}
	return func() error {
		file, err := os.OpenFile(w.Path(a), os.O_WRONLY|os.O_APPEND, 0)
		if err != nil {
			return err
		}
		_, err = file.Write(data[n:])
		return errors.Join(err, file.Close())
	}, nil
}

// Remove deletes the record of an attachment, after its address was taken back. A record that is not there is no
// error, as it is none to libcni.
func (w *Writer) Remove(a Attachment) error {
	a = a.complete()
	paths := []string{w.Path(a)}
	if w.cfg.Loopback {
		paths = append(paths, w.path(a, loopbackNetwork, "lo"))
	}
	for _, path := range paths {
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

func (w *Writer) addLoopback(a Attachment) error {
	if !w.cfg.Loopback {
		return nil
	}
	data, err := w.marshalLoopback(a)
	if err != nil {
		return err
	}
	return w.write(w.path(a, loopbackNetwork, "lo"), data)
}

// write is libcni's: in place, so that a reader may see less than all of it.
func (w *Writer) write(path string, data []byte) error {
	if err := os.MkdirAll(w.cfg.Dir, 0o700); err != nil {
		return err
	}
	if !w.cfg.Rename {
		return os.WriteFile(path, data, 0o600)
	}
	beside, err := os.CreateTemp(w.cfg.Dir, ".record-*")
	if err != nil {
		return err
	}
	_, err = beside.Write(data)
	if err = errors.Join(err, beside.Close()); err != nil {
		return errors.Join(err, os.Remove(beside.Name()))
	}
	return os.Rename(beside.Name(), path)
}
