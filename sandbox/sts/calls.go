package sts

import (
	"context"
	"net/http"
	"time"
)

// Call is one call as it arrived.
type Call struct {
	Time       time.Time
	Action     string // AssumeRole, …
	RemoteAddr string
	UserAgent  string

	Caller        string // the ARN of who signed it, or the subject of the web identity token; empty: not told
	CallerRoleARN string // the role behind Caller, empty if it is none
	AccessKeyID   string // empty: not signed
	Region        string // of the signature

	RoleARN     string
	SessionName string
	ExternalID  string
	Tags        string // canonical JSON, as Session.Tags
	Duration    time.Duration

	// Outcome is "Success" or the code of the error that was answered; empty before that and if nothing was answered.
	Outcome string
}

// Calls returns the latest calls, oldest first.
func (s *Server) Calls() []Call { return s.calls.All() }

// Count returns how many calls named the role (any call: ""), however many of them are kept.
func (s *Server) Count(roleARN string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.counts[roleARN]
}

// Reset forgets all calls and counts.
func (s *Server) Reset() {
	s.calls.Reset()
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.counts)
}

// Wait returns the n-th call (counted from 1, over those that are kept and those to come) that match accepts; nil
// accepts each. It returns when the call arrives, before it is answered, or with ctx's error.
func (s *Server) Wait(ctx context.Context, n int, match func(Call) bool) (Call, error) {
	return s.calls.Wait(ctx, n, match)
}

// maxCounted bounds the roles that are counted one by one.
const maxCounted = 100_000

// record notes a call and returns its number in the journal.
func (s *Server) record(call Call) int {
	s.mu.Lock()
	s.counts[""]++
	if _, counted := s.counts[call.RoleARN]; call.RoleARN != "" && (counted || len(s.counts) < maxCounted) {
		s.counts[call.RoleARN]++
	}
	s.mu.Unlock()
	return s.calls.Add(call)
}

// readCall tells from a request what is called and by whom. The error is what authentication or reading found.
func (s *Server) readCall(r *http.Request) (Call, caller, *Error) {
	form := r.Form
	call := Call{
		Time: time.Now(), Action: form.Get("Action"), RemoteAddr: r.RemoteAddr, UserAgent: r.UserAgent(),
		RoleARN: form.Get("RoleArn"), SessionName: form.Get("RoleSessionName"), ExternalID: form.Get("ExternalId"),
		Tags: canonical(readTags(form)),
	}
	var who caller
	var err *Error
	if call.Action == "AssumeRoleWithWebIdentity" { // the only action that is not signed
		call.Caller = readIdentity(form.Get("WebIdentityToken")).Subject
	} else {
		who, err = s.authenticate(r)
		call.Caller, call.CallerRoleARN, call.AccessKeyID, call.Region = who.arn, who.roleARN, who.accessKeyID, who.region
	}
	var malformed *Error
	if call.Duration, malformed = duration(form); err == nil {
		err = malformed
	}
	return call, who, err
}
