package kubeapi

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"
)

// maxRequests bounds the record; the oldest go first.
const maxRequests = 10_000

// Request is one request as the server saw it. Verb, Group, Resource and
// Namespace are what RBAC would judge; the rest is as sent.
type Request struct {
	Time                             time.Time
	Verb                             string // "get", "list", "watch", "create", "patch"…
	Path                             string
	Group, Resource, Namespace, Name string // Resource "": not a resource path
	FieldSelector, LabelSelector     string
	ResourceVersion                  string
	SendInitialEvents                bool
	UserAgent, Accept                string
	Code                             int   // of the answer, 0 while there is none
	Sent                             int64 // bytes of the answer's body so far
	Open                             bool  // still being answered, such as a watch
}

// Requests returns what was asked so far, oldest first: the last ten thousand.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]Request, len(s.requests))
	for i, rec := range s.requests {
		all[i] = *rec
	}
	return all
}

// Count returns how many requests match.
func (s *Server) Count(match func(Request) bool) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.count(match)
}

func (s *Server) count(match func(Request) bool) int {
	n := 0
	for _, rec := range s.requests {
		if match(*rec) {
			n++
		}
	}
	return n
}

// WaitFor waits until at least n requests match, counted from the start. It looks
// again when a request comes, when it is answered (Code) and when it ends (Open),
// so that `r.Verb == "watch" && r.Open` waits for an established watch.
func (s *Server) WaitFor(ctx context.Context, n int, match func(Request) bool) error {
	have := 0
	if err := s.wait(ctx, func() bool { have = s.count(match); return have >= n }); err != nil {
		return fmt.Errorf("waiting for %d requests, had %d: %w", n, have, err)
	}
	return nil
}

// Of matches the requests with a verb and resource, such as "watch" and "pods".
func Of(verb, resource string) func(Request) bool {
	return func(r Request) bool { return r.Verb == verb && r.Resource == resource }
}

// Watching matches the watches on a resource that are established and open.
func Watching(resource string) func(Request) bool {
	return func(r Request) bool {
		return r.Verb == "watch" && r.Resource == resource && r.Open && r.Code == http.StatusOK
	}
}

func (s *Server) begin(r *http.Request, to route, cancel context.CancelCauseFunc) *Request {
	query := r.URL.Query()
	rec := &Request{
		Time: time.Now(), Verb: to.verb, Path: r.URL.Path,
		Group: to.gvr.Group, Resource: to.gvr.Resource, Namespace: to.name.Namespace, Name: to.name.Name,
		FieldSelector: query.Get("fieldSelector"), LabelSelector: query.Get("labelSelector"),
		ResourceVersion: query.Get("resourceVersion"), SendInitialEvents: query.Get("sendInitialEvents") == "true",
		UserAgent: r.UserAgent(), Accept: r.Header.Get("Accept"), Open: true,
	}
	by, _ := r.Context().Value(http.ServerContextKey).(*http.Server)
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.requests) >= maxRequests {
		s.requests = slices.Clone(s.requests[maxRequests/10:])
	}
	s.requests = append(s.requests, rec)
	s.open[rec] = serving{cancel: cancel, by: by}
	s.broadcast()
	return rec
}

func (s *Server) end(rec *Request, cancel context.CancelCauseFunc) {
	cancel(nil)
	s.mu.Lock()
	defer s.mu.Unlock()
	rec.Open = false
	delete(s.open, rec)
	s.broadcast()
}

// responseRecorder notes the code and size of an answer.
type responseRecorder struct {
	http.ResponseWriter
	server  *Server
	request *Request // guarded by server.mu
}

// Unwrap lets http.ResponseController reach Flush.
func (w *responseRecorder) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (w *responseRecorder) WriteHeader(code int) {
	w.server.fault(func() { w.request.Code = code })
	w.ResponseWriter.WriteHeader(code)
}

// Write implements http.ResponseWriter.
func (w *responseRecorder) Write(body []byte) (int, error) {
	n, err := w.ResponseWriter.Write(body)
	w.server.mu.Lock()
	w.request.Sent += int64(n)
	w.server.mu.Unlock()
	return n, err
}
