package credentials

import "time"

// Kind says what to make of an [Error]. What decides is the code that STS gave, never the HTTP status: STS sends
// Throttling with status 400.
type Kind int

const (
	// Unavailable means that STS could not be reached, failed, or gave no session that is valid by the node's clock.
	// It may pass at any moment. The zero value, because nothing final follows from it.
	Unavailable Kind = iota
	// Throttled means that STS asks to be called less often.
	Throttled
	// OwnIdentity means that the daemon's own credentials are missing, expired or not accepted. It says nothing about
	// the role, and concerns every role on the node.
	OwnIdentity
	// Refused means that STS does not let the daemon assume the role (AccessDenied). STS does not tell a role that does
	// not exist from one whose trust policy, or the daemon's own policy, does not allow it.
	Refused
	// Invalid means that STS cannot make sense of what it was asked for (a length that the role does not allow, tags
	// that do not fit, a region that is not enabled). It stays so until somebody changes something.
	Invalid
)

// String returns the kind as it stands in metric labels and logs.
func (k Kind) String() string {
	switch k {
	case Unavailable:
		return "unavailable"
	case Throttled:
		return "throttled"
	case OwnIdentity:
		return "own-identity"
	case Refused:
		return "refused"
	case Invalid:
		return "invalid"
	}
	return "unknown"
}

// Permanent reports whether asking again soon is of no use.
func (k Kind) Permanent() bool { return k == Refused || k == Invalid }

// sentence begins what is said about an error of the kind.
func (k Kind) sentence() string {
	switch k {
	case Unavailable:
		return "STS is not available"
	case Throttled:
		return "STS asks for fewer calls"
	case OwnIdentity:
		return "the node's own AWS identity does not work"
	case Refused:
		return "STS refuses this node the role"
	case Invalid:
		return "STS rejects the request as it is configured"
	}
	return "unknown trouble with STS"
}

// Error is why there is no session. It is meant for the operator: the pod must not see it, since it may name the
// node's role. It is immutable.
type Error struct {
	Kind      Kind
	Code      string // the AWS error code; empty if there was no answer to take it from
	RequestID string // of the STS call; empty if there was none
	Err       error  // what happened

	// RetryAfter is how long it is of no use to ask again; 0: not known.
	RetryAfter time.Duration
}

// Error implements error.
func (e *Error) Error() string {
	s := e.Kind.sentence()
	if e.Code != "" {
		s += ": " + e.Code
	}
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	if e.RequestID != "" {
		s += " (request " + e.RequestID + ")"
	}
	return s
}

// Unwrap returns what happened.
func (e *Error) Unwrap() error { return e.Err }
