package proxy

import (
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/sirupsen/logrus"

	"pod2role/credentials"
	"pod2role/mappings"
)

// outcome says what became of a request; it is a metric label. The outcomes of refused decisions are the verdicts'
// names, and those of refused sessions the names of the kinds of credentials.Error.
type outcome string

const (
	served           outcome = "served"
	outcomeInvalid   outcome = "invalid"         // the request cannot be read in one way only
	outcomeMethod    outcome = "method"          // the path does not have the method
	outcomeDenied    outcome = "denied"          // the path names a secret, or is closed by the mode
	outcomeDirect    outcome = "direct"          // the connection was not redirected
	outcomeMoved     outcome = "moved"           // its address went to another interface while it was connected
	outcomeOverLimit outcome = "over-limit"      // the source has too many requests underway
	outcomeForwarded outcome = "forwarded"       // a proxy stands between the client and us
	outcomeToken     outcome = "token"           // a token is missing, or not valid
	outcomeTTL       outcome = "token-ttl"       // a token was asked for with no TTL, or an impossible one
	outcomeOtherRole outcome = "other-role"      // a role was asked for that is not the pod's
	outcomeExpired   outcome = "expired"         // the session has expired: there should have been none
	outcomeUpstream  outcome = "upstream-failed" // the real service gives no answer
	outcomeGone      outcome = "client-gone"     // the client left before there was an answer
	outcomeFailed    outcome = "failed"          // something here went wrong
)

// level is the log level of an outcome that concerns a role: what somebody should look at is a warning.
func (o outcome) level() logrus.Level {
	ordinary := []outcome{served, outcomeGone, outcomeToken, outcomeForwarded, outcome(mappings.NoRole.String())}
	if slices.Contains(ordinary, o) {
		return logrus.InfoLevel
	}
	return logrus.WarnLevel
}

// refusal is how a decision or an error is answered. Every refusal that does not depend on the path is in the two
// functions that return one.
type refusal struct {
	outcome outcome
	status  int
	again   time.Duration // Retry-After of a 503
	// document says that the role exists, but this pod cannot have it: where credentials were asked for, EC2 has a
	// document for that.
	document bool
}

// refuseVerdict answers a decision that grants nothing. What may change soon is 503, which SDKs try again; 404 is final for
// them and means that there is no role (https://docs.aws.amazon.com/sdkref/latest/guide/feature-imds-credentials.html).
func refuseVerdict(v mappings.Verdict) refusal {
	r := refusal{outcome: outcome(v.String()), status: http.StatusServiceUnavailable, again: comeAgain}
	switch v {
	case mappings.NoRole:
		r.status = http.StatusNotFound
	case mappings.Malformed, mappings.Forbidden:
		r.status, r.document = http.StatusForbidden, true
	case mappings.NotAPod:
		r.status = http.StatusForbidden
	case mappings.Allowed: // but there is no pod
		r.outcome = outcome(mappings.Undecided.String())
	case mappings.Undecided, mappings.Pending, mappings.Ambiguous, mappings.Busy:
	}
	return r
}

// refuseError answers what credentials returns instead of a session.
func refuseError(err error) refusal {
	r := refusal{outcome: outcomeFailed, status: http.StatusServiceUnavailable, again: comeAgain}
	if e, ok := errors.AsType[*credentials.Error](err); ok {
		r.outcome = outcome(e.Kind.String())
		r.again = max(comeAgain, e.RetryAfter)
		if e.Kind.Permanent() {
			r.status, r.document = http.StatusForbidden, true
		}
	}
	return r
}

// refuse answers with a refusal.
func (x *exchange) refuse(r refusal) {
	x.outcome = r.outcome
	if x.r.Context().Err() != nil {
		x.outcome = outcomeGone
	}
	if r.status == http.StatusServiceUnavailable {
		x.w.Header().Set("Retry-After", seconds(r.again))
	}
	if r.document && (x.target.route == routeRole || x.target.route == routeExtendedRole) {
		x.answer(r.status, plainText, unauthorized(x.start))
		return
	}
	x.answer(r.status, xhtml, errorPage(r.status))
}
