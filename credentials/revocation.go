package credentials

import "time"

// A role that STS refuses to renew has been taken away from the node, or else the node's own policy is broken and STS
// refuses it every role. The first must end what the pods get; to act on the second would turn a slip in one policy
// into an outage of the whole cluster, while every session is still good. The two answers look the same, so that only
// another role tells them apart:
//
//   - STS has given any session since it refused this one last: the node's policy works, so the role was taken away.
//   - STS has given none since: the node's policy is suspected, and the session is kept until it expires. To know at
//     once, the cache renews the session of one other role early; if that is refused as well, that of the next.
//   - No other role on the node has ever worked, or all that did were taken away: there is nothing to compare with, and
//     the refusal is taken at its word.

// refused records that STS refuses to renew the entry's session, and asks for a comparison.
func (c *Cache) refused(e *entry, now time.Time) {
	if e.refusedAt.IsZero() {
		e.refusedAt = now
	}
	e.refused = c.flights
	var oldest *entry
	for _, o := range c.entries {
		if o.key.RoleARN == e.key.RoleARN || o.session == nil || o.failures > 0 {
			continue
		}
		if o.flying || o.probe {
			return // about to tell
		}
		if oldest == nil || o.life.left(now) < oldest.life.left(now) {
			oldest = o
		}
	}
	if oldest != nil {
		oldest.probe = true
	}
}

// revoked reports whether the refusal concerns this role rather than the node.
func (c *Cache) revoked(e *entry) bool {
	if e.failure.Kind != Refused {
		return false // STS has had other trouble since; its next word counts
	}
	if c.success > e.refused {
		return true
	}
	for _, o := range c.entries {
		if o.key.RoleARN != e.key.RoleARN && o.worked {
			return false
		}
	}
	return true
}
