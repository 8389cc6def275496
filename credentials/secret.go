package credentials

import (
	"fmt"
	"io"
)

const redacted = "REDACTED"

// Secret is a string that prints as REDACTED through every fmt verb, JSON and text encoder. Reveal gives its value.
//
// Keep secrets in exported fields only: package fmt does not ask the methods of an unexported one.
type Secret string

// Reveal returns the secret itself.
func (s Secret) Reveal() string { return string(s) }

// String implements fmt.Stringer.
func (Secret) String() string { return redacted }

// Format implements fmt.Formatter, because a verb that does not suit a string (%d) prints it past String.
func (Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, redacted) }

// MarshalText implements encoding.TextMarshaler, and with it JSON.
func (Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }
