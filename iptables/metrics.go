package iptables

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

type metrics struct {
	complete   prometheus.Gauge
	repairs    prometheus.Counter
	redirected prometheus.Counter
	locked     prometheus.Counter

	last inspection // what was counted already; Run's alone
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		complete: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "pod2role_iptables_complete",
			Help: "1 if all redirect and lock rules were in the kernel when last looked at.",
		}),
		repairs: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "pod2role_iptables_repairs_total",
			Help: "How often rules that somebody else had changed were put back.",
		}),
		redirected: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "pod2role_iptables_redirected_connections_total",
			Help: "Connections of pods that the kernel sent to the proxy, as read every resync.",
		}),
		locked: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "pod2role_iptables_locked_packets_total",
			Help: "Packets of pods to a metadata address that were rejected, as read every resync.",
		}),
	}
	if reg == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{m.complete, m.repairs, m.redirected, m.locked} {
		if err := reg.Register(c); err != nil {
			return nil, fmt.Errorf("registering the redirect's metrics: %w", err)
		}
	}
	return m, nil
}

// observe adds what the kernel has counted since the last look. Its counters begin anew when rules are replaced.
func (m *metrics) observe(found inspection) {
	since := func(now, last uint64) float64 {
		if now < last {
			last = 0
		}
		return float64(now - last)
	}
	m.redirected.Add(since(found.redirected, m.last.redirected))
	m.locked.Add(since(found.locked, m.last.locked))
	m.last = found
	if len(found.problems) == 0 {
		m.complete.Set(1)
	} else {
		m.complete.Set(0)
	}
}
