package sts_test

import (
	"encoding/base64"
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"pod2role/sandbox/sts"
)

// jwt is an unsigned JSON Web Token.
func jwt(t *testing.T, claims map[string]any) string {
	t.Helper()
	encoded, err := json.Marshal(claims)
	if err != nil {
		t.Fatal(err)
	}
	return "e30." + base64.RawURLEncoding.EncodeToString(encoded) + ".c2ln"
}

func TestWebIdentityIsCheckedByItsClaims(t *testing.T) {
	const issuer, subject = "https://oidc.example", "system:serviceaccount:ns:sa"
	claims := func(change string, value any) map[string]any {
		c := map[string]any{"iss": issuer, "sub": subject, "aud": []string{"sts.amazonaws.com"}, "exp": time.Now().Add(time.Hour).Unix()}
		c[change] = value
		return c
	}
	tests := []struct {
		name, token string
		status      int
		code        string
	}{
		{"right", jwt(t, claims("x", 1)), 200, ""},
		{"audience as one string", jwt(t, claims("aud", "sts.amazonaws.com")), 200, ""},
		{"no token", "", 400, "InvalidIdentityToken"},
		{"not a token", "a.b", 400, "InvalidIdentityToken"},
		{"not base64", "a.!.c", 400, "InvalidIdentityToken"},
		{"another issuer", jwt(t, claims("iss", "https://other")), 400, "InvalidIdentityToken"},
		{"another audience", jwt(t, claims("aud", "kubernetes")), 400, "InvalidIdentityToken"},
		{"expired", jwt(t, claims("exp", 1)), 400, "ExpiredTokenException"},
		{"another subject", jwt(t, claims("sub", "system:serviceaccount:ns:other")), 403, "AccessDenied"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := sts.New(sts.Config{Issuers: []string{issuer}, Roles: map[string]sts.Role{reader: {Trusts: []string{subject}}}})
			// Two hours: it is no role chaining.
			got := call(t, s, "", "", "Action", "AssumeRoleWithWebIdentity", "WebIdentityToken", tt.token, "DurationSeconds", "7200")
			if diff := cmp.Diff([]any{tt.status, tt.code}, []any{got.Status, got.Code}); diff != "" {
				t.Errorf("status and code (-want +got):\n%s", diff)
			}
		})
	}
}
