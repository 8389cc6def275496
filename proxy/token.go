package proxy

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/binary"
	"hash"
	"net/netip"
	"sync"
	"time"
)

// What EC2 says of session tokens,
// https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/configuring-instance-metadata-service.html.
const (
	tokenHeader    = "X-Aws-Ec2-Metadata-Token"
	tokenTTLHeader = "X-Aws-Ec2-Metadata-Token-Ttl-Seconds"
	maxTokenTTL    = 21600 // seconds
)

const (
	tokenKeySize = 32
	// tokenHold is how long a token PUT waits for its pod to become known: botocore gives each request one second, and
	// goes on without a token after that.
	tokenHold = 950 * time.Millisecond
	// provisionalTTL is how long a token is honoured that was made before its pod was known.
	provisionalTTL = time.Minute
	// clockStep is how far in the future a token may have been made: the clock may have been set back since.
	clockStep = time.Minute
)

// The two kinds of token. Both are bound to the address that they were given to; one whose pod was known is bound to
// that as well, so that it dies with the pod and not with the address.
const (
	tokenOfPod     = 'p'
	tokenOfAddress = 'a'
)

// A token is its kind, when it was made (Unix time in nanoseconds), its TTL in seconds, and a MAC over these, the
// address and the pod's UID.
const (
	tokenPayload = 1 + 8 + 4
	tokenSize    = tokenPayload + sha256.Size
)

// tokens makes and checks session tokens. It keeps no record of them: whoever has the key knows them again.
type tokens struct {
	macs     sync.Pool // of hash.Hash, keyed
	encoding *base64.Encoding
}

func newTokens(key []byte) *tokens {
	key = append([]byte(nil), key...)
	return &tokens{
		macs:     sync.Pool{New: func() any { return hmac.New(sha256.New, key) }},
		encoding: base64.RawURLEncoding.Strict(), // legal in a header, and one spelling only
	}
}

// mint returns a token for the pod at addr, or, if uid is empty, for whoever is at addr for the next minute.
func (t *tokens) mint(addr netip.Addr, uid string, ttl int, now time.Time) string {
	var token [tokenSize]byte
	token[0] = tokenOfPod
	if uid == "" {
		token[0] = tokenOfAddress
	}
	binary.BigEndian.PutUint64(token[1:], uint64(now.UnixNano()))
	binary.BigEndian.PutUint32(token[9:], uint32(ttl))
	t.sign(token[:tokenPayload:tokenPayload], addr, uid, token[tokenPayload:])
	return t.encoding.EncodeToString(token[:])
}

// valid reports whether token was given to the pod uid at addr and has not expired.
func (t *tokens) valid(token string, addr netip.Addr, uid string, now time.Time) bool {
	var given [tokenSize]byte
	if len(token) != t.encoding.EncodedLen(tokenSize) {
		return false
	}
	if _, err := t.encoding.Decode(given[:], []byte(token)); err != nil {
		return false
	}
	ttl := time.Duration(binary.BigEndian.Uint32(given[9:])) * time.Second
	if given[0] == tokenOfAddress {
		uid = ""
		ttl = min(ttl, provisionalTTL)
	} else if uid == "" {
		return false
	}
	var want [sha256.Size]byte
	t.sign(given[:tokenPayload:tokenPayload], addr, uid, want[:])
	if subtle.ConstantTimeCompare(given[tokenPayload:], want[:]) != 1 {
		return false
	}
	age := time.Duration(now.UnixNano() - int64(binary.BigEndian.Uint64(given[1:])))
	return -clockStep <= age && age < ttl
}

// sign writes the MAC to out.
func (t *tokens) sign(payload []byte, addr netip.Addr, uid string, out []byte) {
	mac := t.macs.Get().(hash.Hash) // the pool holds nothing else
	defer t.macs.Put(mac)
	mac.Reset()
	var buffer [tokenPayload + 16 + 64]byte
	message := append(buffer[:0], payload...)
	a := addr.As16()
	message = append(message, a[:]...)
	message = append(message, uid...) // last, and all before it of fixed size: no two inputs share a message
	mac.Write(message)
	mac.Sum(out[:0])
}
