package proxy

import (
	"net/http"
	"strconv"

	"pod2role/mappings"
)

// token answers a PUT with a session token. It does so for every pod, also one without a role: an SDK that gets none
// goes on with IMDSv1, some of them for the life of the process.
func (p *Proxy) token(x *exchange) {
	if forwarded(x.r.Header) {
		x.fail(http.StatusForbidden, outcomeForwarded)
		return
	}
	ttl, ok := tokenTTL(x.r.Header[tokenTTLHeader])
	if !ok {
		x.fail(http.StatusBadRequest, outcomeTTL)
		return
	}
	x.hold.deadline = x.start.Add(min(tokenHold, p.cfg.Hold))
	if !p.ask(x) {
		return
	}
	uid, ok := bearer(x.decision)
	if !ok {
		x.refuse(refuseVerdict(x.decision.Verdict))
		return
	}
	if p.cfg.TokenHopLimit > 0 {
		if x.err = setHopLimit(x.conn.Conn, x.conn.addr, p.cfg.TokenHopLimit); x.err != nil {
			x.failAgain(outcomeFailed)
			return
		}
	}
	x.outcome = served
	x.w.Header().Set(tokenTTLHeader, strconv.Itoa(ttl)) // without it, some SDKs drop the token
	x.answer(http.StatusOK, plainText, []byte(p.tokens.mint(x.conn.addr, uid, ttl, x.start)))
}

// bearer returns the UID of the pod that a token is for. It is empty while that is not known: then the token is bound
// to the address alone, and short-lived. If it is not a pod, it gets none.
func bearer(d *mappings.Decision) (uid string, ok bool) {
	switch d.Verdict {
	case mappings.Allowed, mappings.NoRole, mappings.Malformed, mappings.Forbidden:
		if d.Pod != nil {
			return d.Pod.UID, true
		}
	case mappings.Pending, mappings.Ambiguous, mappings.Busy:
		return "", true
	case mappings.Undecided, mappings.NotAPod:
	}
	return "", false
}

// tokenTTL reads the TTL that a token was asked for with, in seconds: EC2 takes an integer from 1 to 21600.
func tokenTTL(header []string) (ttl int, ok bool) {
	if len(header) != 1 || len(header[0]) < 1 || len(header[0]) > 5 {
		return 0, false
	}
	for _, c := range []byte(header[0]) {
		if c < '0' || c > '9' {
			return 0, false
		}
		ttl = 10*ttl + int(c-'0')
	}
	return ttl, ttl >= 1 && ttl <= maxTokenTTL
}
