package proxy

import (
	"net/http"
	"sync/atomic"
	"time"

	"github.com/gorilla/mux"

	"pod2role/mappings"
)

// exchange is one request on its way to its answer.
type exchange struct {
	w      http.ResponseWriter
	r      *http.Request
	conn   *conn
	target target
	start  time.Time
	hold   hold // how long it may wait to be decided, and for a session

	closing  *atomic.Bool       // the answer is the last on its connection
	decision *mappings.Decision // nil until it was asked for
	outcome  outcome
	status   int
	err      error // for the log
}

// exchangeOf returns the exchange that a request belongs to. A connection has one at a time: net/http reads the next
// request of a connection only when the one before has been answered.
func exchangeOf(r *http.Request) *exchange { return connOf(r).exchange }

// routes dispatches by the classifier's verdict alone: no pattern looks at the path a second time, and nothing is
// redirected to a path that is thought to be cleaner.
func (p *Proxy) routes() *mux.Router {
	router := mux.NewRouter().SkipClean(true).UseEncodedPath()
	for _, entry := range []struct {
		route  route
		handle func(*exchange)
	}{
		{routeRole, p.role},
		{routeList, p.list},
		{routeToken, p.token},
		{routePassThrough, p.pass},
		{routeInfo, p.info},
		{routeExtendedList, p.list},
		{routeExtendedRole, p.extendedRole},
		{routeUserData, p.pass},
		{routeDenied, func(x *exchange) { x.fail(http.StatusNotFound, outcomeDenied) }},
		{routeDatedToken, func(x *exchange) { x.fail(http.StatusForbidden, outcomeDenied) }},
		{routeMethod, func(x *exchange) {
			x.w.Header().Set("Allow", x.target.allow)
			x.fail(http.StatusMethodNotAllowed, outcomeMethod)
		}},
	} {
		router.NewRoute().
			MatcherFunc(func(r *http.Request, _ *mux.RouteMatch) bool { return exchangeOf(r).target.route == entry.route }).
			HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { entry.handle(exchangeOf(r)) })
	}
	router.NotFoundHandler = http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		exchangeOf(r).fail(http.StatusBadRequest, outcomeInvalid)
	})
	return router
}

// ServeHTTP implements http.Handler.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	x := &exchange{w: w, r: r, conn: connOf(r), start: time.Now(), outcome: outcomeFailed, closing: &p.closing}
	x.target = classify(r.Method, r.RequestURI)
	defer p.finish(x)

	if r.ContentLength != 0 {
		// No request here has a use for a body. It is not read, so it cannot be waited for, and what follows it cannot
		// be taken for another request.
		w.Header().Set("Connection", "close")
		_ = http.NewResponseController(w).SetReadDeadline(x.start.Add(p.cfg.ReadHeaderTimeout))
	}
	if x.conn == nil || x.conn.direct {
		w.Header().Set("Connection", "close")
		x.fail(http.StatusForbidden, outcomeDirect)
		return
	}
	defer x.conn.source.requests.Add(-1)
	if int(x.conn.source.requests.Add(1)) > p.cfg.MaxRequestsPerSource {
		x.failAgain(outcomeOverLimit)
		return
	}
	x.hold = hold{Context: r.Context(), deadline: x.start.Add(p.cfg.Hold)}
	defer x.hold.release()
	x.conn.exchange = x
	// Not the router's ServeHTTP: it copies the request twice, for variables and a route that nobody asks for.
	var match mux.RouteMatch
	p.router.Match(r, &match)
	match.Handler.ServeHTTP(w, r)
}

// decide finds out who is asking and checks the token, in the order that costs least. If it returns false, the request
// has been answered.
func (p *Proxy) decide(x *exchange) bool {
	token, presented := x.r.Header[tokenHeader]
	switch {
	case !presented && p.cfg.TokenMode == TokensRequired, len(token) > 1:
		x.fail(http.StatusUnauthorized, outcomeToken)
		return false
	case presented && forwarded(x.r.Header):
		x.fail(http.StatusForbidden, outcomeForwarded)
		return false
	}
	x.decision = p.ask(x)
	if x.decision.Pod == nil || x.decision.Verdict == mappings.NotAPod {
		// Without a pod there is nothing to serve, whatever the verdict says.
		x.refuse(refuseVerdict(x.decision.Verdict))
		return false
	}
	if presented && !p.tokens.valid(token[0], x.conn.addr, x.decision.Pod.UID, x.start) {
		x.fail(http.StatusUnauthorized, outcomeToken)
		return false
	}
	return true
}

// ask never returns nil.
func (p *Proxy) ask(x *exchange) *mappings.Decision {
	if d := p.cfg.Decide(&x.hold, x.conn.addr, x.conn.ifindex); d != nil {
		return d
	}
	return &mappings.Decision{}
}

// forwarded reports whether a request has passed a proxy. EC2 refuses such requests for a token, and with one: a
// reverse proxy that was talked into asking adds these headers
// (https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/configuring-instance-metadata-service.html). They are never
// taken for who is asking.
func forwarded(h http.Header) bool { return h["X-Forwarded-For"] != nil || h["Forwarded"] != nil }
