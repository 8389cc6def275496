package identity

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/time/rate"

	"pod2role/mappings"
)

// question is what the API server can be asked: for the pod that a record names, or for the pods with an address. The
// zero value asks for nothing.
type question struct {
	uid, namespace, name string
	addr                 netip.Addr
}

// answer is what the API server said.
type answer struct {
	question question
	pods     []*mappings.Pod
	seen     []*mappings.Pod // what the view showed for the address when the question was put
}

// pod returns the pod with uid, if the answer has it. A pod that was made anew under the same name is another one.
func (a *answer) pod(uid string) *mappings.Pod {
	for _, pod := range a.pods {
		if pod.UID == uid {
			return pod
		}
	}
	return nil
}

// speaksOf says that the answer is about addr and that the view has shown the same pods there ever since, but for those
// that the answer itself has brought. If it has not, the view may know better by now.
func (a *answer) speaksOf(addr netip.Addr, now []*mappings.Pod) bool {
	if a.question != (question{addr: addr}) {
		return false
	}
	for _, pod := range a.seen {
		if !has(now, pod.UID) {
			return false
		}
	}
	for _, pod := range now {
		if !has(a.seen, pod.UID) && !has(a.pods, pod.UID) {
			return false
		}
	}
	return true
}

func has(pods []*mappings.Pod, uid string) bool {
	return slices.ContainsFunc(pods, func(p *mappings.Pod) bool { return p.UID == uid })
}

// reading is a direct read in flight.
type reading struct {
	cancel  context.CancelFunc
	waiters int           // guarded by Resolver.mu
	done    chan struct{} // closed once answer and err are there
	answer  answer
	err     error
}

// inquiry is what one held request has found out, and asks of the API server.
type inquiry struct {
	resolver *Resolver
	source   netip.Addr
	recorded string // UID of the pod whose record stood for the address while the request waited; empty: none did

	asked   question
	reading *reading // nil: none in flight
	due     time.Time
	pause   time.Duration
	heard   *answer // the last answer, nil: none
	note    string  // what came of the last question, for the trail
}

// ask puts a question, unless it has been put and is not due again. It returns what to wait for: the answer, or the
// time to ask again. Both are nil if there is nothing to ask.
func (q *inquiry) ask(what question) (answered <-chan struct{}, retry <-chan time.Time) {
	if what != q.asked { // a record appeared, or went: this is another question
		q.leave()
		*q = inquiry{resolver: q.resolver, source: q.source, recorded: q.recorded, asked: what}
	}
	if what == (question{}) {
		return nil, nil
	}
	if q.reading == nil && !time.Now().Before(q.due) {
		if q.reading = q.resolver.join(q.source, what); q.reading == nil {
			q.note = "not asked: too many questions"
			q.postpone()
		}
	}
	if q.reading != nil {
		return q.reading.done, nil
	}
	return nil, time.After(time.Until(q.due))
}

// hear takes in the answer.
func (q *inquiry) hear() {
	q.heard = nil
	switch a := &q.reading.answer; {
	case q.reading.err != nil:
		q.note = q.reading.err.Error()
	case len(a.pods) == 0:
		q.heard, q.note = a, "no such pod"
	default:
		q.heard, q.note = a, names(a.pods)
		if q.asked.uid != "" && a.pod(q.asked.uid) == nil {
			q.note = fmt.Sprintf("%s is another pod of that name (%s)", q.note, a.pods[0].UID)
		}
	}
	q.leave()
	q.postpone()
}

func (q *inquiry) postpone() {
	q.pause = min(max(2*q.pause, firstPause), longestPause)
	q.due = time.Now().Add(q.pause)
}

// leave stops waiting for the answer. Nobody reads for a request that has gone.
func (q *inquiry) leave() {
	if q.reading == nil {
		return
	}
	r := q.resolver
	r.mu.Lock()
	defer r.mu.Unlock()
	if q.reading.waiters--; q.reading.waiters == 0 {
		q.reading.cancel()
		if r.reads[q.asked] == q.reading {
			delete(r.reads, q.asked)
		}
	}
	q.reading = nil
}

// join waits for the answer to a question together with everybody else who asks it; nil: the limits are reached.
func (r *Resolver) join(source netip.Addr, what question) *reading {
	r.mu.Lock()
	defer r.mu.Unlock()
	if rd := r.reads[what]; rd != nil {
		rd.waiters++
		return rd
	}
	if !r.mayRead(source) {
		r.metrics.reads.WithLabelValues("limited").Inc()
		return nil
	}
	// The read belongs to all who wait for it, not to the request that happened to come first.
	ctx, cancel := context.WithTimeout(context.Background(), r.config.Hold)
	rd := &reading{cancel: cancel, waiters: 1, done: make(chan struct{}), answer: answer{question: what}}
	if what.addr.IsValid() {
		rd.answer.seen = r.config.View.PodsAt(what.addr)
	}
	r.reads[what] = rd
	go r.read(ctx, rd)
	return rd
}

func (r *Resolver) read(ctx context.Context, rd *reading) {
	what := rd.answer.question
	if what.addr.IsValid() {
		rd.answer.pods, rd.err = r.config.View.ReadAddr(ctx, what.addr)
	} else {
		var pod *mappings.Pod
		if pod, rd.err = r.config.View.ReadPod(ctx, what.namespace, what.name); pod != nil {
			rd.answer.pods = []*mappings.Pod{pod}
		}
	}
	outcome := "found"
	switch {
	case ctx.Err() != nil:
		outcome = "abandoned"
	case rd.err != nil:
		outcome = "error"
		r.config.Log.WithError(rd.err).WithFields(what.fields()).Warn("asking the API server directly")
	case len(rd.answer.pods) == 0:
		outcome = "none"
	case what.uid != "" && rd.answer.pod(what.uid) == nil:
		outcome = "another"
	}
	r.metrics.reads.WithLabelValues(outcome).Inc()

	r.mu.Lock()
	if r.reads[what] == rd {
		delete(r.reads, what)
	}
	r.mu.Unlock()
	rd.cancel()
	close(rd.done)
}

func (q question) fields() map[string]any {
	if q.addr.IsValid() {
		return map[string]any{"addr": q.addr.String()}
	}
	return map[string]any{"pod": q.namespace + "/" + q.name}
}

// maxLimits bounds how many addresses' limiters are kept.
const maxLimits = 1024

// mayRead takes a token for a direct read for source. r.mu is held.
func (r *Resolver) mayRead(source netip.Addr) bool {
	l := r.limits[source]
	if l == nil {
		if len(r.limits) >= maxLimits {
			for addr, idle := range r.limits {
				if idle.Tokens() >= float64(r.config.Reads.PerSourceBurst) { // as good as new
					delete(r.limits, addr)
				}
			}
		}
		if len(r.limits) >= maxLimits {
			return false
		}
		l = rate.NewLimiter(r.config.Reads.PerSource, r.config.Reads.PerSourceBurst)
		r.limits[source] = l
	}
	return l.Allow() && r.limit.Allow()
}
