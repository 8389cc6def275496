//go:build !linux

package handover

import (
	"errors"
	"os"
)

var errNotSupported = errors.New("sockets are handed over on Linux only")

func checkPeer(conn) error { return errNotSupported }

func listens(*os.File) error { return errNotSupported }
