package proxy

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/sirupsen/logrus"

	"pod2role/mappings"
)

// Mode says how much of the real service pods may read.
type Mode string

const (
	// Standard opens every path that carries no secret.
	Standard Mode = "standard"
	// Strict opens what SDKs and node agents are known to ask for: where the instance is, what it is, and what is going
	// to happen to it. It is the list in the function strict.
	Strict Mode = "strict"
	// None opens nothing.
	None Mode = "none"
)

// PassThrough says what of the real service pods may read. Secrets stay closed in every mode.
type PassThrough struct {
	Mode Mode // standard if empty
	// Allow are regular expressions for further paths. One has to match the whole path, version included, with or
	// without a slash at its end.
	Allow []string
	// UserData opens the instance's user data, in every mode.
	UserData bool
}

// policy is a PassThrough that has been read.
type policy struct {
	mode     Mode
	allow    []*regexp.Regexp
	userData bool
}

func newPolicy(given PassThrough) (policy, error) {
	p := policy{mode: given.Mode, userData: given.UserData}
	var problems []error
	if !slices.Contains([]Mode{Standard, Strict, None}, given.Mode) {
		problems = append(problems, fmt.Errorf("the pass-through's mode is standard, strict or none, not %q", given.Mode))
	}
	for _, expression := range given.Allow {
		// By itself first: `a)|(b` would else get out of the group that anchors it.
		if _, err := regexp.Compile(expression); err != nil {
			problems = append(problems, fmt.Errorf("reading the pass-through's expression %q: %w", expression, err))
			continue
		}
		p.allow = append(p.allow, regexp.MustCompile(`^(?:`+expression+`)$`))
	}
	return p, errors.Join(problems...)
}

// opens reports whether pods may read what t names. The classifier has denied secrets before: nothing here opens them.
func (p policy) opens(t target) bool {
	if t.route == routeUserData {
		return p.userData
	}
	if t.route != routePassThrough {
		return false
	}
	if p.mode == Standard || (p.mode == Strict && strict(t.path)) {
		return true
	}
	bare := strings.TrimSuffix(t.path, "/")
	return slices.ContainsFunc(p.allow, func(e *regexp.Regexp) bool {
		return e.MatchString(bare) || e.MatchString(bare+"/")
	})
}

// strict reports whether a path is open in the strict mode.
func strict(path string) bool {
	_, rest, _ := strings.Cut(strings.Trim(path, "/"), "/")
	switch rest {
	case "dynamic/instance-identity/document",
		"meta-data/ami-id", "meta-data/hostname", "meta-data/instance-id", "meta-data/instance-life-cycle",
		"meta-data/instance-type", "meta-data/ipv6", "meta-data/local-hostname", "meta-data/local-ipv4", "meta-data/mac",
		"meta-data/placement", "meta-data/spot", "meta-data/events", "meta-data/services":
		return true
	}
	for _, below := range []string{"meta-data/placement/", "meta-data/spot/", "meta-data/events/", "meta-data/services/"} {
		if strings.HasPrefix(rest, below) {
			return true
		}
	}
	return false
}

// documents is where everything comes from that is not about roles.
type documents interface {
	// cached returns a document that is at hand, or nil.
	cached(path string) *reply
	// get returns the answer for a canonical path, also if it is an error of the service's. It returns an error if
	// there is no answer.
	get(ctx context.Context, path string) (*reply, error)
	close()
}

// reply is an answer of the real service.
type reply struct {
	status       int
	contentType  string
	lastModified string
	etag         string
	body         []byte
}

// pass answers with a document of the real service, for known pods only.
func (p *Proxy) pass(x *exchange) {
	if !p.policy.opens(x.target) {
		x.fail(http.StatusNotFound, outcomeDenied)
		return
	}
	if !p.mayRead(x) {
		return
	}
	found := p.documents.cached(x.target.path)
	if found != nil {
		p.metrics.upstream.WithLabelValues(fromCache).Inc()
	} else if found = p.fetch(x); found == nil {
		return
	}
	h := x.w.Header()
	if found.lastModified != "" {
		h.Set("Last-Modified", found.lastModified)
	}
	if found.etag != "" {
		h.Set("Etag", found.etag)
	}
	x.outcome = served
	x.answer(found.status, found.contentType, found.body)
}

// mayRead reports whether a pod is asking, with or without a role. If not, the request has been answered.
func (p *Proxy) mayRead(x *exchange) bool {
	if !p.decide(x) {
		return false
	}
	switch x.decision.Verdict {
	case mappings.Allowed, mappings.NoRole, mappings.Malformed, mappings.Forbidden:
		return true
	case mappings.Undecided, mappings.Pending, mappings.Ambiguous, mappings.NotAPod, mappings.Busy:
	}
	x.refuse(refuseVerdict(x.decision.Verdict))
	return false
}

// fetch asks the real service. If it returns nil, the request has been answered.
func (p *Proxy) fetch(x *exchange) *reply {
	if !x.conn.source.upstream.Allow() {
		p.metrics.upstream.WithLabelValues(upstreamRate).Inc()
		x.failAgain(outcomeOverLimit)
		return nil
	}
	found, err := p.documents.get(x.r.Context(), x.target.path)
	if err != nil {
		p.metrics.upstream.WithLabelValues(upstreamFailed).Inc()
		x.err = err
		x.refuse(refusal{outcome: outcomeUpstream, status: http.StatusServiceUnavailable, again: comeAgain})
		if p.mayLog(logrus.WarnLevel, x.conn.source) {
			p.entry(x.conn).WithError(err).WithField("path", x.target.path).Warn("the metadata service gave no answer")
		}
		return nil
	}
	p.metrics.upstream.WithLabelValues(fromUpstream).Inc()
	return found
}
