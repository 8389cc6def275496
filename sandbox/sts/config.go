package sts

import (
	"cmp"
	"slices"
	"time"
)

// Config describes the account and its trust. The zero value trusts everybody with everything.
type Config struct {
	// Account is the account of callers whose access key is not in Callers. Default 111122223333.
	Account string
	// Region is the only region whose signatures are accepted; empty: any.
	Region string
	// Callers are the access keys that are known, beside those of sessions given here; nil: every key is.
	Callers map[string]string // :: access key ID -> ARN

	// Roles are the roles that exist; nil: every role does, and trusts everybody.
	Roles map[string]Role // :: role ARN -> role
	// Trust decides, after Roles, whether the call is allowed; nil: it is. It may be called concurrently.
	Trust func(Call) bool

	// Issuers are the identity providers of AssumeRoleWithWebIdentity; nil: every issuer is trusted.
	Issuers []string
	// Audience is what web identity tokens must be for. Default sts.amazonaws.com.
	Audience string

	// Lifetime is the life of the sessions given, whatever the call asks for; calls are validated all the same.
	// 0: what the call asks for.
	Lifetime time.Duration
	// MaxCalls is how many of the latest calls are kept. Default 10000.
	MaxCalls int
}

// Role is a role's trust policy.
type Role struct {
	// Trusts are the callers who may assume the role: ARNs of users, roles or assumed-role sessions, or the subjects of
	// web identity tokens. nil: everybody.
	Trusts []string
	// ExternalID is the one that a caller must give; empty: none is looked at.
	ExternalID string
	// DenyTags refuses sessions with tags, as a trust policy without sts:TagSession does.
	DenyTags bool
	// MaxSessionDuration is the longest session. Default 12 h; IAM's own default is 1 h.
	MaxSessionDuration time.Duration
}

func (c Config) withDefaults() Config {
	c.Account = cmp.Or(c.Account, "111122223333")
	c.Audience = cmp.Or(c.Audience, "sts.amazonaws.com")
	c.MaxCalls = cmp.Or(c.MaxCalls, 10_000)
	return c
}

// allows says whether the trust policy and Config.Trust allow the call, and which action they refuse.
func (c Config) allows(call Call) (refused string, ok bool) {
	action := "sts:" + call.Action
	if c.Roles != nil {
		role, exists := c.Roles[call.RoleARN]
		switch {
		case !exists, // STS does not tell a role that does not exist from one that may not be assumed
			role.Trusts != nil && !slices.Contains(role.Trusts, call.Caller) && !slices.Contains(role.Trusts, call.CallerRoleARN),
			role.ExternalID != "" && role.ExternalID != call.ExternalID:
			return action, false
		case role.DenyTags && call.Tags != "":
			return "sts:TagSession", false
		}
	}
	if c.Trust != nil && !c.Trust(call) {
		return action, false
	}
	return "", true
}

// maxSession is the longest session that the role gives.
func (c Config) maxSession(roleARN string) time.Duration {
	return cmp.Or(c.Roles[roleARN].MaxSessionDuration, 12*time.Hour)
}
