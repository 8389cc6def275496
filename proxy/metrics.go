package proxy

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the proxy's. Every label has few values, none of them a client's choice.
type metrics struct {
	requests   *prometheus.CounterVec   // :: route, outcome, code
	seconds    *prometheus.HistogramVec // :: route
	turnedAway *prometheus.CounterVec   // :: reason
	upstream   *prometheus.CounterVec   // :: result
}

// The results of looking a document up, as metric labels.
const (
	fromCache      = "cached"
	fromUpstream   = "fetched"
	upstreamFailed = "failed"
	upstreamRate   = "over-limit"
)

func newMetrics(registerer prometheus.Registerer, s *sources) (*metrics, error) {
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "pod2role_proxy_requests_total",
			Help: "Requests of pods, by what they were for, what became of them, and the status of the answer.",
		}, []string{"route", "outcome", "code"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "pod2role_proxy_request_seconds",
			Help: "How long requests of pods took to answer.",
			// The Go SDK gives up after half a second, most others after one.
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5},
		}, []string{"route"}),
		turnedAway: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "pod2role_proxy_connections_refused_total",
			Help: "Connections that were not served: too many in total or from one source, or not redirected (direct).",
		}, []string{"reason"}),
		upstream: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "pod2role_proxy_documents_total",
			Help: "Documents of the real metadata service that pods asked for, by where they came from.",
		}, []string{"result"}),
	}
	if registerer == nil {
		return m, nil
	}
	connections := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "pod2role_proxy_connections",
		Help: "Connections of pods that are open.",
	}, func() float64 { return float64(s.connections()) })
	var problems []error
	for _, c := range []prometheus.Collector{m.requests, m.seconds, m.turnedAway, m.upstream, connections} {
		problems = append(problems, registerer.Register(c))
	}
	if err := errors.Join(problems...); err != nil {
		return nil, fmt.Errorf("registering the proxy's metrics: %w", err)
	}
	return m, nil
}

// answered records a request.
func (m *metrics) answered(x *exchange, took time.Duration) {
	route := x.target.route.String()
	m.requests.WithLabelValues(route, string(x.outcome), strconv.Itoa(x.status)).Inc()
	m.seconds.WithLabelValues(route).Observe(took.Seconds())
}
