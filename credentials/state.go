package credentials

import (
	"cmp"
	"slices"
	"time"
)

// State is what the debug view shows of one key. It holds no secret.
type State struct {
	RoleARN    string `json:"roleARN"`
	Name       string `json:"sessionName"`
	ExternalID string `json:"externalID,omitzero"` // masked
	Tags       string `json:"tags,omitzero"`

	AccessKeyID string    `json:"accessKeyID,omitzero"` // empty: no session is held
	Obtained    time.Time `json:"obtained,omitzero"`
	Expiration  time.Time `json:"expiration,omitzero"`
	AgeSeconds  float64   `json:"ageSeconds,omitzero"`
	LeftSeconds float64   `json:"leftSeconds,omitzero"` // by the stricter of the two clocks
	NextCall    time.Time `json:"nextCall,omitzero"`    // when STS is asked next; zero: not foreseen, or under way
	Calling     bool      `json:"calling"`

	Referrers int       `json:"referrers"`
	Waiters   int       `json:"waiters"`
	Used      time.Time `json:"used,omitzero"` // when it was last asked for or let go of

	Failures     int       `json:"failures,omitzero"` // in a row
	LastError    string    `json:"lastError,omitzero"`
	LastKind     string    `json:"lastErrorKind,omitzero"`
	LastErrorAt  time.Time `json:"lastErrorAt,omitzero"`
	RefusedSince time.Time `json:"refusedSince,omitzero"` // STS has refused to renew the session since
}

// States returns what is known of every key, ordered by role and session name.
func (c *Cache) States() []State {
	now := time.Now()
	c.mu.Lock()
	states := make([]State, 0, len(c.entries))
	for _, e := range c.entries {
		states = append(states, c.state(e, now))
	}
	c.mu.Unlock()
	slices.SortFunc(states, func(a, b State) int {
		return cmp.Or(cmp.Compare(a.RoleARN, b.RoleARN), cmp.Compare(a.Name, b.Name), cmp.Compare(a.ExternalID, b.ExternalID), cmp.Compare(a.Tags, b.Tags))
	})
	return states
}

func (c *Cache) state(e *entry, now time.Time) State {
	s := State{
		RoleARN: e.key.RoleARN, Name: e.key.Name, ExternalID: mask(e.key.ExternalID), Tags: e.key.Tags,
		Calling: e.flying, Referrers: e.refs, Waiters: e.waiters, Used: e.used.UTC(), RefusedSince: e.refusedAt,
	}
	if e.session != nil {
		s.AccessKeyID = e.session.AccessKeyID
		s.Obtained, s.Expiration = e.session.Obtained.UTC(), e.session.Expiration.UTC()
		s.AgeSeconds, s.LeftSeconds = now.Sub(e.session.Obtained).Seconds(), e.life.left(now).Seconds()
	}
	if at, _, ok := e.next(now, &c.cfg, c.started); ok && !c.started.IsZero() && !c.stopped {
		s.NextCall = at.UTC()
	}
	if e.failures > 0 {
		s.Failures, s.LastErrorAt = e.failures, e.failedAt.UTC()
		s.LastError, s.LastKind = e.failure.Error(), e.failure.Kind.String()
	}
	return s
}
