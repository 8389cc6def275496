// Package debug serves the operator: health, readiness, metrics and the debug views.
//
// Health, readiness and metrics are for the kubelet and for Prometheus, on a port of their own. The debug views and the
// profiler say which pod has which role, so they are served on the loopback interface only, and only to requests that
// name it: a web page that a browser on the node shows cannot read them. No view may carry a secret; the package prints
// what it is given, and imports none of the project's others.
package debug
