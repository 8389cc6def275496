package sts

import (
	"bytes"
	"crypto/sha256"
	"encoding/base32"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Session is what credentials given by this package say of themselves. Sessions are comparable.
type Session struct {
	RoleARN    string
	Name       string // RoleSessionName
	ExternalID string // empty: none
	Tags       string // canonical JSON, an array of {"Key","Value"} sorted by key; empty: none
	Serial     uint64 // of the session, counted from 1 by the server that gave it
	Expires    int64  // Unix seconds; 0 if it was decoded from an access key ID, which does not say it
}

// ErrForeign is what Decode returns for credentials that were not given by this package.
var ErrForeign = errors.New("not a credential of the sandbox's STS")

// ErrDigest is what Decode returns for an access key ID whose session is too long for the 128 characters that an access
// key ID may have. Its secret access key and its session token say it.
var ErrDigest = errors.New("session is too long to be told from the access key ID")

const (
	tokenPrefix  = "IQoJb3JpZ2luX2Vj" // every real session token begins so
	secretPrefix = "p2r/"
	keyPrefix    = "ASIA"

	maxAccessKeyID = 128 // characters
	kindWhole      = 0   // an access key ID that says the session
	kindDigest     = 1   // one that says only the session's serial and a digest of it
)

// legible is the alphabet of access key IDs.
func legible() *base32.Encoding { return base32.StdEncoding.WithPadding(base32.NoPadding) }

// Credentials returns the three parts of the session's credentials. The same session always has the same ones.
func (s Session) Credentials() (accessKeyID, secretAccessKey, token string) {
	encoded, err := json.Marshal(s)
	if err != nil { // strings and numbers always marshal
		encoded = nil
	}
	sum := sha256.Sum256(encoded)
	payload := base64.StdEncoding.EncodeToString(append(sum[:6:6], encoded...))
	return s.accessKeyID(), secretPrefix + payload, tokenPrefix + payload
}

func (s Session) accessKeyID() string {
	fields := strings.Join([]string{s.RoleARN, s.Name, s.ExternalID, s.Tags}, "\x00")
	whole := binary.AppendUvarint([]byte{kindWhole}, s.Serial)
	whole = append(whole, shorten(fields)...)
	if id := keyPrefix + legible().EncodeToString(whole); len(id) <= maxAccessKeyID {
		return id
	}
	sum := sha256.Sum256([]byte(fields))
	digest := binary.AppendUvarint([]byte{kindDigest}, s.Serial)
	return keyPrefix + legible().EncodeToString(append(digest, sum[:10]...))
}

// The beginning of most role ARNs, in one byte.
const arnStart, arnShort = "arn:aws:iam::", "\x01"

func shorten(fields string) string {
	if rest, ok := strings.CutPrefix(fields, arnStart); ok {
		return arnShort + rest
	}
	return fields
}

func lengthen(fields string) string {
	if rest, ok := strings.CutPrefix(fields, arnShort); ok {
		return arnStart + rest
	}
	return fields
}

// Decode returns the session that an access key ID, a secret access key or a session token belongs to. It returns
// ErrForeign for what this package did not give, and ErrDigest for the access key ID of a very long session.
func Decode(part string) (Session, error) {
	for _, prefix := range []string{tokenPrefix, secretPrefix} {
		if payload, ok := strings.CutPrefix(part, prefix); ok {
			return decodePayload(payload)
		}
	}
	if encoded, ok := strings.CutPrefix(part, keyPrefix); ok {
		return decodeAccessKeyID(encoded)
	}
	return Session{}, ErrForeign
}

// DecodeCredentials returns the session that all three parts belong to, or an error if they do not belong together.
func DecodeCredentials(accessKeyID, secretAccessKey, token string) (Session, error) {
	session, err := Decode(token)
	if err != nil {
		return Session{}, fmt.Errorf("decoding the session token: %w", err)
	}
	wantID, wantSecret, wantToken := session.Credentials()
	if accessKeyID != wantID || secretAccessKey != wantSecret || token != wantToken {
		return Session{}, fmt.Errorf("session token is of %s as %q, the access key is not: %w", session.RoleARN, session.Name, ErrForeign)
	}
	return session, nil
}

func decodePayload(payload string) (Session, error) {
	raw, err := base64.StdEncoding.Strict().DecodeString(payload)
	if err != nil || len(raw) < 6 {
		return Session{}, ErrForeign
	}
	if sum := sha256.Sum256(raw[6:]); !bytes.Equal(sum[:6], raw[:6]) {
		return Session{}, ErrForeign
	}
	var session Session
	if err := json.Unmarshal(raw[6:], &session); err != nil {
		return Session{}, ErrForeign
	}
	return session, nil
}

func decodeAccessKeyID(encoded string) (Session, error) {
	raw, err := legible().DecodeString(encoded)
	if err != nil || len(raw) < 2 {
		return Session{}, ErrForeign
	}
	serial, n := binary.Uvarint(raw[1:])
	if n <= 0 {
		return Session{}, ErrForeign
	}
	fields := strings.Split(lengthen(string(raw[1+n:])), "\x00")
	switch {
	case raw[0] == kindDigest && len(raw) == 1+n+10:
		return Session{}, ErrDigest
	case raw[0] != kindWhole, len(fields) != 4, !strings.HasPrefix(fields[0], "arn:"):
		return Session{}, ErrForeign
	}
	return Session{RoleARN: fields[0], Name: fields[1], ExternalID: fields[2], Tags: fields[3], Serial: serial}, nil
}

// ARN returns the ARN of the assumed-role session, as GetCallerIdentity says it: without the role's path.
func (s Session) ARN() string {
	partition, account, name := splitRole(s.RoleARN)
	return "arn:" + partition + ":sts::" + account + ":assumed-role/" + name + "/" + s.Name
}

// expired says whether the session's life is over.
func (s Session) expired() bool { return s.Expires != 0 && time.Now().Unix() >= s.Expires }

// splitRole takes a role ARN apart. What is no role ARN gives empty parts.
func splitRole(arn string) (partition, account, name string) {
	parts := strings.SplitN(arn, ":", 6)
	if len(parts) != 6 {
		return "", "", ""
	}
	return parts[1], parts[4], parts[5][strings.LastIndexByte(parts[5], '/')+1:]
}

// roleID is the unique ID of a role: AROA and 17 characters that its ARN decides.
func roleID(arn string) string {
	sum := sha256.Sum256([]byte(arn))
	return "AROA" + legible().EncodeToString(sum[:11])[:17]
}
