package testnet

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
)

// Real is what the stand-in for the metadata service answers to every request: a pod that reads it has got through.
const Real = "the real metadata service"

// A MetadataService is the stand-in that a test must keep pods away from, or let them reach.
type MetadataService struct {
	ns       *Namespace
	accepted atomic.Int64
}

// ServeMetadata starts the stand-in on port 80 of the metadata addresses, until the test ends.
func (n *Net) ServeMetadata(t testing.TB) *MetadataService {
	t.Helper()
	s := &MetadataService{ns: n.Metadata}
	addrs := []string{MetadataAddr}
	if n.ipv6 {
		addrs = append(addrs, MetadataAddr6)
	}
	for _, a := range addrs {
		server := &http.Server{
			Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, Real) }),
			ConnState: func(_ net.Conn, state http.ConnState) {
				if state == http.StateNew {
					s.accepted.Add(1)
				}
			},
		}
		l := n.Metadata.Listen(t, "tcp", net.JoinHostPort(a, "80"))
		go func() { _ = server.Serve(l) }()
		t.Cleanup(func() { _ = server.Close() })
	}
	return s
}

// Accepted returns how many connections the stand-in has accepted.
func (s *MetadataService) Accepted() int { return int(s.accepted.Load()) }

// Segments returns how many TCP segments, of IPv4 and IPv6, for whatever port, have arrived in the stand-in's namespace:
// the kernel's own count. It tells that not even a SYN got through.
func (s *MetadataService) Segments(t testing.TB) int {
	t.Helper()
	var data []byte
	if err := s.ns.Do(func() (err error) {
		data, err = os.ReadFile("/proc/thread-self/net/snmp")
		return err
	}); err != nil {
		t.Fatalf("reading the kernel's TCP statistics: %v", err)
	}
	var names []string
	for lines := bufio.NewScanner(bytes.NewReader(data)); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) == 0 || fields[0] != "Tcp:" {
			continue
		}
		if names == nil {
			names = fields
			continue
		}
		for i, name := range names {
			if name == "InSegs" && i < len(fields) {
				n, err := strconv.Atoi(fields[i])
				if err != nil {
					t.Fatalf("reading the kernel's TCP statistics: %v", err)
				}
				return n
			}
		}
	}
	t.Fatal("reading the kernel's TCP statistics: no InSegs")
	return 0
}
