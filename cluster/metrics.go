package cluster

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// register makes the metrics, and registers them if there is where to.
func (c *Cluster) register(registerer prometheus.Registerer) error {
	c.reads = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "pod2role_cluster_reads_total",
		Help: "Direct reads of pods, by what was asked for (pod, address) and outcome (found, absent, stale, error).",
	}, []string{"by", "outcome"})
	if registerer == nil {
		return nil
	}
	label := []string{"resource"}
	for _, collector := range []prometheus.Collector{c.reads, &watches{
		cluster:   c,
		objects:   prometheus.NewDesc("pod2role_cluster_objects", "Objects in the view.", label, nil),
		connected: prometheus.NewDesc("pod2role_cluster_watch_connected", "Whether a watch is open.", label, nil),
		last:      prometheus.NewDesc("pod2role_cluster_watch_last_event_timestamp_seconds", "When the last list, event or bookmark came.", label, nil),
		opened:    prometheus.NewDesc("pod2role_cluster_watches_total", "How often a watch was opened.", label, nil),
		failed:    prometheus.NewDesc("pod2role_cluster_watch_errors_total", "How often a list, or the opening of a watch, failed.", label, nil),
	}} {
		if err := registerer.Register(collector); err != nil {
			return fmt.Errorf("registering the metrics of the watches: %w", err)
		}
	}
	return nil
}

func (c *Cluster) count(by, outcome string) { c.reads.WithLabelValues(by, outcome).Inc() }

// watches reports the watches as they are when asked.
type watches struct {
	cluster                                  *Cluster
	objects, connected, last, opened, failed *prometheus.Desc
}

// Describe implements prometheus.Collector.
func (w *watches) Describe(ch chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{w.objects, w.connected, w.last, w.opened, w.failed} {
		ch <- desc
	}
}

// Collect implements prometheus.Collector.
func (w *watches) Collect(ch chan<- prometheus.Metric) {
	for _, s := range w.cluster.Status() {
		gauge := func(desc *prometheus.Desc, value float64) {
			ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, s.Resource)
		}
		gauge(w.objects, float64(s.Objects))
		if s.Connected {
			gauge(w.connected, 1)
		} else {
			gauge(w.connected, 0)
		}
		if !s.LastEvent.IsZero() {
			gauge(w.last, float64(s.LastEvent.Unix()))
		}
		ch <- prometheus.MustNewConstMetric(w.opened, prometheus.CounterValue, float64(s.Watches), s.Resource)
		ch <- prometheus.MustNewConstMetric(w.failed, prometheus.CounterValue, float64(s.Errors), s.Resource)
	}
}
