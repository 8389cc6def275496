package identity

import (
	"github.com/prometheus/client_golang/prometheus"

	"pod2role/mappings"
)

type metrics struct {
	held     prometheus.Gauge
	outcomes [mappings.Busy + 1]prometheus.Counter // by verdict
	seconds  prometheus.Histogram
	reads    *prometheus.CounterVec // outcome
	record   prometheus.Counter
	view     prometheus.Counter
	read     prometheus.Counter
}

func newMetrics(registerer prometheus.Registerer) (metrics, error) {
	outcomes := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "pod2role_identity_held_total", Help: "Requests that were held, or were one too many, by the verdict they ended with.",
	}, []string{"outcome"})
	bound := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "pod2role_identity_bound_total", Help: "Requests whose pod was told, by what bound the address to it.",
	}, []string{"by"})
	m := metrics{
		held: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "pod2role_identity_held", Help: "Requests that wait now for their pod to become known.",
		}),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "pod2role_identity_hold_seconds", Help: "How long requests were held.", Buckets: []float64{.01, .05, .1, .25, .5, 1, 2.5, 5},
		}),
		reads: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "pod2role_identity_reads_total", Help: "Direct reads of the API server, by outcome: found, none, another (pod of that name), error, abandoned, limited.",
		}, []string{"outcome"}),
		record: bound.WithLabelValues(string(byRecord)), view: bound.WithLabelValues(string(byView)), read: bound.WithLabelValues(string(byRead)),
	}
	for v := range m.outcomes {
		m.outcomes[v] = outcomes.WithLabelValues(mappings.Verdict(v).String())
	}
	for _, outcome := range []string{"found", "none", "another", "error", "abandoned", "limited"} {
		m.reads.WithLabelValues(outcome)
	}
	if registerer == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{outcomes, bound, m.held, m.seconds, m.reads} {
		if err := registerer.Register(c); err != nil {
			return metrics{}, err
		}
	}
	return m, nil
}

func (m *metrics) outcome(v mappings.Verdict) { m.outcomes[v].Inc() }

func (m *metrics) bound(by source) {
	switch by {
	case byRecord:
		m.record.Inc()
	case byView:
		m.view.Inc()
	case byRead:
		m.read.Inc()
	}
}
