package sts

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// identity is what a web identity token says. Its signature is not looked at.
type identity struct {
	Issuer   string   `json:"iss"`
	Subject  string   `json:"sub"`
	Audience audience `json:"aud"`
	Expires  float64  `json:"exp"` // Unix seconds

	ok bool // it is a JSON Web Token
}

// audience is one audience or several (RFC 7519 §4.1.3).
type audience []string

// UnmarshalJSON implements json.Unmarshaler.
func (a *audience) UnmarshalJSON(data []byte) error {
	var one string
	if err := json.Unmarshal(data, &one); err == nil {
		*a = audience{one}
		return nil
	}
	return json.Unmarshal(data, (*[]string)(a))
}

// readIdentity reads the claims of a JSON Web Token (RFC 7519).
func readIdentity(token string) identity {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return identity{}
	}
	claims, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return identity{}
	}
	id := identity{ok: true}
	if err := json.Unmarshal(claims, &id); err != nil {
		return identity{}
	}
	return id
}

// verify checks the claims as STS does.
func (c Config) verify(id identity) *Error {
	now := time.Now().Unix()
	switch {
	case !id.ok || id.Issuer == "" || id.Subject == "":
		return &Error{Code: "InvalidIdentityToken", Message: "The ID Token provided is not a valid JWT. (You may see this error if you sent an Access Token)"}
	case c.Issuers != nil && !slices.Contains(c.Issuers, id.Issuer):
		return &Error{Code: "InvalidIdentityToken", Message: "No OpenIDConnect provider found in your account for " + id.Issuer}
	case !slices.Contains(id.Audience, c.Audience):
		return &Error{Code: "InvalidIdentityToken", Message: "Incorrect token audience"}
	case int64(id.Expires) <= now:
		return &Error{
			Code:    "ExpiredTokenException",
			Message: fmt.Sprintf("Token expired: current date/time %d must be before the expiration date/time %d", now, int64(id.Expires)),
		}
	}
	return nil
}
