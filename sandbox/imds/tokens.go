package imds

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// The headers of IMDSv2.
//
// https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/configuring-instance-metadata-service.html
const (
	TokenHeader    = "X-Aws-Ec2-Metadata-Token"
	TokenTTLHeader = "X-Aws-Ec2-Metadata-Token-Ttl-Seconds"
)

const maxTokenTTL = 21600 // seconds

// tokenKey signs tokens, so that none has to be remembered.
type tokenKey [32]byte

// RevokeTokens makes every token invalid that was minted before, as a stop and a start of the instance do.
func (s *Server) RevokeTokens() {
	var key tokenKey
	_, _ = rand.Read(key[:]) // never fails: crypto/rand.Read's contract
	s.tokenKey.Store(&key)
}

// putToken answers a PUT on the token path of any version.
func (s *Server) putToken(r *http.Request, version string) answer {
	switch {
	case s.cfg.Tokens == TokensDisabled, version != "latest":
		return failure(http.StatusForbidden)
	case r.Header.Get("X-Forwarded-For") != "":
		return forwarded()
	}
	ttl, err := strconv.ParseUint(r.Header.Get(TokenTTLHeader), 10, 32)
	if err != nil || ttl < 1 || ttl > maxTokenTTL {
		return failure(http.StatusBadRequest)
	}
	token := s.tokenKey.Load().mint(time.Now().Add(time.Duration(ttl) * time.Second))
	return answer{
		status: http.StatusOK, contentType: "text/plain", body: []byte(token),
		header: map[string]string{TokenTTLHeader: strconv.FormatUint(ttl, 10)},
	}
}

// authorize says which answer refuses a request for data, nil if none does, and how many seconds the presented token
// has left.
func (s *Server) authorize(r *http.Request) (refusal *answer, left int) {
	if s.cfg.Tokens == TokensDisabled {
		return nil, 0
	}
	token := r.Header.Get(TokenHeader)
	if token == "" {
		if s.cfg.Tokens == TokensRequired {
			a := failure(http.StatusUnauthorized)
			return &a, 0
		}
		return nil, 0
	}
	if r.Header.Get("X-Forwarded-For") != "" {
		a := forwarded()
		return &a, 0
	}
	expires, ok := s.tokenKey.Load().verify(token)
	if !ok || !time.Now().Before(expires) {
		a := failure(http.StatusUnauthorized) // in optional mode too: only a missing token is IMDSv1
		return &a, 0
	}
	return nil, int(time.Until(expires).Round(time.Second) / time.Second)
}

func (k *tokenKey) mint(expires time.Time) string {
	var payload [16]byte
	binary.BigEndian.PutUint64(payload[:8], uint64(expires.UnixNano()))
	_, _ = rand.Read(payload[8:]) // never fails: crypto/rand.Read's contract
	return TokenMarker + base64.URLEncoding.EncodeToString(append(payload[:], k.sign(payload[:])...))
}

func (k *tokenKey) verify(token string) (expires time.Time, ok bool) {
	encoded, ok := strings.CutPrefix(token, TokenMarker)
	if !ok {
		return time.Time{}, false
	}
	raw, err := base64.URLEncoding.Strict().DecodeString(encoded)
	if err != nil || len(raw) < 16 || !hmac.Equal(raw[16:], k.sign(raw[:16])) {
		return time.Time{}, false
	}
	return time.Unix(0, int64(binary.BigEndian.Uint64(raw[:8]))), true
}

func (k *tokenKey) sign(payload []byte) []byte {
	mac := hmac.New(sha256.New, k[:])
	mac.Write(payload)
	return mac.Sum(nil)[:17] // 33 bytes in all: base64 without padding
}
