package mappings

import "strings"

// Verdict is the outcome of a [Decision]. The zero value grants nothing.
type Verdict int

const (
	// Undecided is the zero value: nothing was looked at, so nothing is granted.
	Undecided Verdict = iota
	// Allowed means that the pod may use Decision.Session.
	Allowed
	// NoRole means that the pod is known and neither it, nor its namespace, nor the operator names a role.
	NoRole
	// Malformed means that the role the pod (or its namespace, or the operator) names cannot be read.
	Malformed
	// Forbidden means that the namespace's annotations do not allow the role.
	Forbidden
	// Pending means that what decides is not known yet: the pod, its namespace or the base ARN. It may be held, and
	// asked again.
	Pending
	// Ambiguous means that more than one live pod claims the address.
	Ambiguous
	// NotAPod means that the address is known not to be that of a pod of this node.
	NotAPod
	// Busy means that too many requests are being held, in total or from this address.
	Busy
)

// Decision says what one pod may have, and why. One is made per request; it is immutable and may be shared.
type Decision struct {
	Verdict Verdict

	// Pod is the pod that is meant, nil while that is not known.
	Pod *Pod

	// Session is what to ask STS for; valid only if Verdict is Allowed.
	Session Session

	// Listing is the role as the metadata service lists it: the short name when the role lies under the base ARN,
	// else what the annotation says. Valid only if Verdict is Allowed.
	Listing string

	// Reason says in one sentence why the verdict is what it is, and what to do about a refusal. It is meant for the
	// operator (log, Event, debug endpoint), never for the pod.
	Reason string

	// Trail is what was looked at and found, in order, ending with what settled it.
	Trail []Step
}

// Step is one entry of a trail.
type Step struct {
	Looked string `json:"looked"` // what was looked at: "the pod's annotation iam.amazonaws.com/role"
	Found  string `json:"found"`  // what was found: `"reader", which is arn:aws:iam::123456789012:role/reader`
}

// Session names an STS session. It is comparable, and credentials.Key has the same fields, so that one converts into
// the other: sessions that differ in any field are never shared.
type Session struct {
	RoleARN    string
	Name       string // RoleSessionName, 2-64 legal characters
	ExternalID string // empty: none
	Tags       string // session tags as canonical JSON, an array of {"Key","Value"} sorted by key; empty: none
}

// String returns the verdict's name, as metrics and logs show it.
func (v Verdict) String() string {
	switch v {
	case Undecided:
		return "undecided"
	case Allowed:
		return "allowed"
	case NoRole:
		return "no-role"
	case Malformed:
		return "malformed"
	case Forbidden:
		return "forbidden"
	case Pending:
		return "pending"
	case Ambiguous:
		return "ambiguous"
	case NotAPod:
		return "not-a-pod"
	case Busy:
		return "busy"
	}
	return "undecided" // no such verdict: it grants nothing
}

// MarshalText implements encoding.TextMarshaler, so that JSON shows the verdict's name.
func (v Verdict) MarshalText() ([]byte, error) { return []byte(v.String()), nil }

// Accepts says whether requested, a role as a client asks the metadata service for it, is exactly the role of the
// decision: its ARN, or its name or path and name under the base ARN, with or without a slash before it; and one slash
// may follow. The caller has taken off percent-escapes, once. Nothing is allocated.
func (d *Decision) Accepts(requested string) bool {
	if d.Verdict != Allowed {
		return false
	}
	requested = strings.TrimSuffix(requested, "/")
	if requested == d.Session.RoleARN {
		return true
	}
	if d.Listing == d.Session.RoleARN { // it does not lie under the base ARN, so it has no shorter name
		return false
	}
	return strings.TrimPrefix(requested, "/") == d.Listing
}
