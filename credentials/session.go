package credentials

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// Key is everything that makes one STS session differ from another, but for its length, which all sessions of a cache
// share. It has the fields of mappings.Session and converts from it.
type Key struct {
	RoleARN    string
	Name       string // RoleSessionName
	ExternalID string // empty: none
	Tags       string // canonical JSON array of {"Key","Value"}; empty: none
}

// String implements fmt.Stringer. It masks the external ID, which two parties share and nobody else should learn.
func (k Key) String() string {
	s := k.RoleARN + " as " + k.Name
	if k.ExternalID != "" {
		s += " with external ID " + mask(k.ExternalID)
	}
	if k.Tags != "" {
		s += " tagged " + k.Tags
	}
	return s
}

// Format implements fmt.Formatter, so that every verb masks it.
func (k Key) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, k.String()) }

// mask shows of an external ID no more than tells two of them apart.
func mask(id string) string {
	switch {
	case id == "":
		return ""
	case len(id) < 8:
		return "***"
	default:
		return id[:2] + "***"
	}
}

// Session is one set of temporary credentials as STS returned it. It is immutable.
type Session struct {
	Key             Key
	AccessKeyID     string
	SecretAccessKey Secret
	Token           Secret
	Obtained        time.Time // when STS answered, with the monotonic clock's reading
	Expiration      time.Time // when STS will stop to accept it
	RequestID       string    // of the STS call, for the log

	once     sync.Once
	document []byte
}

// Document returns what render makes of the session. It is rendered once per session, so that the warm path encodes
// nothing; every caller must pass the same function, and none may write to the result.
func (s *Session) Document(render func(*Session) []byte) []byte {
	s.once.Do(func() { s.document = render(s) })
	return s.document
}

// Format implements fmt.Formatter: whatever the verb, neither the secrets nor the rendered document are printed.
func (s *Session) Format(f fmt.State, _ rune) {
	_, _ = fmt.Fprintf(f, "session %s of %s until %s", s.AccessKeyID, s.Key, s.Expiration.UTC().Format(time.RFC3339))
}

// String implements fmt.Stringer.
func (s *Session) String() string { return fmt.Sprint(s) }
