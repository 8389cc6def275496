package credentials

import (
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const namespace = "pod2role_credentials"

// metrics are kept whether or not somebody collects them.
type metrics struct {
	calls    *prometheus.CounterVec
	duration prometheus.Histogram
	flights  prometheus.Gauge
	outcomes *prometheus.CounterVec
	life     prometheus.Histogram
	unserved *prometheus.CounterVec
	revoked  prometheus.Counter
}

func newMetrics(registerer prometheus.Registerer, c *Cache) (*metrics, error) {
	m := &metrics{
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Name: "sts_calls_total",
			Help: "Calls to STS by outcome: ok, the AWS error code, other for a code that is not well known, none for no answer.",
		}, []string{"code"}),
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: namespace, Name: "sts_call_seconds",
			Help: "How long calls to STS took.", Buckets: []float64{.05, .1, .2, .4, .8, 1.6, 3.2, 6.4},
		}),
		flights: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: namespace, Name: "flights",
			Help: "Calls to STS that are under way.",
		}),
		outcomes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Name: "fetches_total",
			Help: "Sessions asked of STS, by why (request: a pod waits; renewal; prefetch) and outcome (ok, or the kind of error).",
		}, []string{"reason", "outcome"}),
		life: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: namespace, Name: "served_life_seconds",
			Help: "How much life the sessions had left when they were served.", Buckets: []float64{60, 300, 600, 900, 1500, 1800, 2400, 3600},
		}),
		unserved: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Name: "unserved_total",
			Help: "Requests for a session that were answered with an error, by its kind.",
		}, []string{"kind"}),
		revoked: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: namespace, Name: "revoked_total",
			Help: "Sessions dropped because STS refused to renew them.",
		}),
	}
	gauge := func(name, help string, count func(*entry) bool) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help}, func() float64 {
			c.mu.Lock()
			defer c.mu.Unlock()
			n := 0
			for _, e := range c.entries {
				if count(e) {
					n++
				}
			}
			return float64(n)
		})
	}
	if registerer == nil {
		return m, nil
	}
	var errs []error
	for _, collector := range []prometheus.Collector{
		m.calls, m.duration, m.flights, m.outcomes, m.life, m.unserved, m.revoked,
		gauge("sessions", "Sessions held.", func(e *entry) bool { return e.session != nil }),
		gauge("failing", "Roles for which the last call to STS failed.", func(e *entry) bool { return e.failures > 0 }),
	} {
		if err := registerer.Register(collector); err != nil {
			errs = append(errs, fmt.Errorf("registering metrics of credentials: %w", err))
		}
	}
	return m, errors.Join(errs...)
}

// call counts one call to STS.
func (m *metrics) call(err error, took time.Duration) {
	code := "ok"
	if e := classified(err); e != nil {
		code = label(e.Code)
	}
	m.calls.WithLabelValues(code).Inc()
	m.duration.Observe(took.Seconds())
}

// landed counts what a flight brought.
func (m *metrics) landed(why urgency, err *Error) {
	reason := "request"
	switch why {
	case waiting:
	case renewal:
		reason = "renewal"
	case prefetch:
		reason = "prefetch"
	}
	outcome := "ok"
	if err != nil {
		outcome = err.Kind.String()
	}
	m.outcomes.WithLabelValues(reason, outcome).Inc()
}
