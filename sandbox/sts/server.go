package sts

import (
	"context"
	"net"
	"net/http"
	"sync"
	"sync/atomic"

	"pod2role/sandbox/loopback"
)

const (
	version = "2011-06-15"
	maxBody = 256 << 10 // bytes; fifty tags and a policy are far below
)

// Server is STS. It is an http.Handler, and safe for concurrent use.
type Server struct {
	cfg    Config
	calls  *loopback.Journal[Call]
	faults atomic.Pointer[faultState]
	serial atomic.Uint64 // of the latest session

	mu     sync.Mutex
	counts map[string]int // :: role ARN, or "" for all -> calls
}

// New returns an STS for the account that cfg describes.
func New(cfg Config) *Server {
	cfg = cfg.withDefaults()
	s := &Server{cfg: cfg, calls: loopback.NewJournal[Call](cfg.MaxCalls), counts: make(map[string]int)}
	s.SetFaults(Faults{})
	return s
}

// Serve answers the connections of ln until ctx ends; then it closes them and returns nil.
func (s *Server) Serve(ctx context.Context, ln net.Listener) error { return loopback.Serve(ctx, ln, s) }

// ServeHTTP implements http.Handler. It closes the connection by a panic with http.ErrAbortHandler, which the server
// of net/http recovers, when the faults say so.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, maxBody)
	if err := r.ParseForm(); err != nil {
		write(w, nil, &Error{Code: "MalformedInput", Message: "The request body is not form-encoded"})
		return
	}
	call, who, err := s.readCall(r)
	number := s.record(call)
	fault, closed := s.inject(r.Context(), call)
	if closed {
		panic(http.ErrAbortHandler)
	}
	if fault != nil {
		err = fault
	}
	var result any
	if err == nil {
		result, err = s.act(r, call, who)
	}
	outcome := "Success"
	if err != nil {
		outcome = err.Code
	}
	s.calls.Update(number, func(c *Call) { c.Outcome = outcome })
	write(w, result, err)
}

// act does what the call asks for. The call is authentic.
func (s *Server) act(r *http.Request, call Call, who caller) (any, *Error) {
	if r.Method != http.MethodPost && r.Method != http.MethodGet || r.URL.Path != "/" {
		return nil, &Error{Code: "UnknownOperationException", Message: "Not an operation of STS", Status: http.StatusNotFound}
	}
	if v := r.Form.Get("Version"); v != version {
		return nil, &Error{Code: "InvalidAction", Message: "Could not find operation " + call.Action + " for version " + v}
	}
	switch call.Action {
	case "AssumeRole":
		return s.assumeRole(r.Form, call, who)
	case "AssumeRoleWithWebIdentity":
		return s.assumeRoleWithWebIdentity(r.Form, call)
	case "GetCallerIdentity":
		return callerIdentity(who), nil
	default:
		return nil, &Error{Code: "InvalidAction", Message: "Could not find operation " + call.Action + " for version " + version}
	}
}
