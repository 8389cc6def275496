package cluster

import (
	"encoding/json"
	"time"
)

// Attempt is one attempt of a client to get credentials.
type Attempt struct {
	Pod   string    // its name
	Start time.Time // of the attempt; of the first one: when the process started

	// How long the three requests took, in nanoseconds, and from Start to the last answer; 0: it was not sent.
	Token, List, Role, Total time.Duration

	Tokenless string          `json:",omitempty"` // why it went on without a token
	Error     string          `json:",omitempty"` // why there are no credentials
	Document  json.RawMessage `json:",omitempty"` // the credentials as they came
}
