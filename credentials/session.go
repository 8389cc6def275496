package credentials

import (
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

// Secret is a string that prints as REDACTED through every fmt verb, JSON and text encoder. Reveal gives its value.
type Secret string

// Reveal returns the secret itself.
func (s Secret) Reveal() string { return string(s) }

// String implements fmt.Stringer.
func (Secret) String() string { return "REDACTED" }

// GoString implements fmt.GoStringer.
func (Secret) GoString() string { return "REDACTED" }

// MarshalText implements encoding.TextMarshaler, and with it JSON.
func (Secret) MarshalText() ([]byte, error) { return []byte("REDACTED"), nil }

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
