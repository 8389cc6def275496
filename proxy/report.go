package proxy

import (
	"time"

	"github.com/sirupsen/logrus"
)

// finish reports an exchange: metrics, hook and log.
func (p *Proxy) finish(x *exchange) {
	took := time.Since(x.start)
	p.metrics.answered(x, took)
	if !x.target.route.credentials() || x.outcome == outcomeDirect {
		return
	}
	if p.cfg.OnRequest != nil {
		p.cfg.OnRequest(Request{
			Addr: x.conn.addr, Decision: x.decision, Route: x.target.route.String(), Role: x.target.role,
			Outcome: string(x.outcome), Status: x.status, Duration: took, Err: x.err,
		})
	}
	if level := x.outcome.level(); p.mayLog(level, x.conn.source) {
		e := p.entry(x.conn).WithFields(x.fields(took))
		if x.err != nil {
			e = e.WithError(x.err)
		}
		e.Log(level, "a pod asked for its role")
	}
}

// mayLog reports whether a line would be read, and whether the source may cause another one now.
func (p *Proxy) mayLog(level logrus.Level, s *source) bool {
	if !p.log.Logger.IsLevelEnabled(level) {
		return false
	}
	if !s.lines.Allow() {
		s.omitted.Add(1)
		return false
	}
	return true
}

// entry begins a line about a source.
func (p *Proxy) entry(c *conn) *logrus.Entry {
	e := p.log.WithField("addr", c.addr.String())
	if n := c.source.omitted.Swap(0); n > 0 {
		e = e.WithField("omitted", n) // lines about this address, for their number
	}
	return e
}

func (x *exchange) fields(took time.Duration) logrus.Fields {
	f := logrus.Fields{
		"route":    x.target.route.String(),
		"outcome":  string(x.outcome),
		"status":   x.status,
		"duration": took.String(),
	}
	if x.target.role != "" {
		f["asked"] = x.target.role
	}
	if d := x.decision; d != nil {
		if d.Pod != nil {
			f["pod"] = d.Pod.Namespace + "/" + d.Pod.Name
		}
		if d.Session.RoleARN != "" {
			f["role"] = d.Session.RoleARN
		}
		if x.outcome != served {
			f["reason"] = d.Reason
		}
	}
	return f
}

// refusedDirect logs a connection that was refused because it was not redirected, or because of err.
func (p *Proxy) refusedDirect(c *conn, err error) {
	if !p.mayLog(logrus.WarnLevel, c.source) {
		return
	}
	e := p.entry(c)
	if err != nil {
		e = e.WithError(err)
	}
	e.Warn("refused a connection that was not redirected from the metadata service's address")
}
