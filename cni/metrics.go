package cni

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

type metrics struct {
	overflows prometheus.Counter
	scans     prometheus.Counter
}

// register makes the metrics, and registers them if there is where to.
func (x *Index) register(registerer prometheus.Registerer) error {
	x.metrics = metrics{
		overflows: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "pod2role_cni_overflows_total",
			Help: "How often the kernel dropped file events, so that all CNI records were read again.",
		}),
		scans: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "pod2role_cni_scans_total",
			Help: "How often all CNI records were looked at.",
		}),
	}
	if registerer == nil {
		return nil
	}
	for _, c := range []prometheus.Collector{x.metrics.overflows, x.metrics.scans, &state{
		index:     x,
		addresses: prometheus.NewDesc("pod2role_cni_addresses", "Addresses whose pod is known from a CNI record.", nil, nil),
		skipped:   prometheus.NewDesc("pod2role_cni_skipped_files", "Files that are not used as CNI records, by reason.", []string{"reason"}, nil),
		watched:   prometheus.NewDesc("pod2role_cni_watched_directories", "CNI results directories that exist and are watched.", nil, nil),
	}} {
		if err := registerer.Register(c); err != nil {
			return fmt.Errorf("registering the metrics of the CNI records: %w", err)
		}
	}
	return nil
}

// state reports the index as it is when asked.
type state struct {
	index                       *Index
	addresses, skipped, watched *prometheus.Desc
}

// Describe implements prometheus.Collector.
func (s *state) Describe(ch chan<- *prometheus.Desc) {
	ch <- s.addresses
	ch <- s.skipped
	ch <- s.watched
}

// Collect implements prometheus.Collector.
func (s *state) Collect(ch chan<- prometheus.Metric) {
	now := s.index.Status()
	skipped, watched := map[string]int{}, 0
	for _, d := range now.Dirs {
		if d.Error == "" && d.Watched == d.Dir {
			watched++
		}
		for why, n := range d.Skipped {
			skipped[why] += n
		}
	}
	ch <- prometheus.MustNewConstMetric(s.addresses, prometheus.GaugeValue, float64(now.Addresses))
	ch <- prometheus.MustNewConstMetric(s.watched, prometheus.GaugeValue, float64(watched))
	for _, why := range reasons() {
		ch <- prometheus.MustNewConstMetric(s.skipped, prometheus.GaugeValue, float64(skipped[string(why)]), string(why))
	}
}
