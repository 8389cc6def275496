// Command bench measures the real daemon on the loopback interface: what an answer costs, what a rush of pods meets, how
// an outage of the API server passes, and what memory and slow clients cost.
//
// Each scenario starts the daemon's binary as a process of its own, against the sandbox's AWS and API server, and asks it
// from 127.0.0.0/8, where every address can be a pod. Costs are ratios against a bare net/http handler that writes the
// same bytes with the same headers, in rounds that alternate with the daemon's, so that whatever else the machine does
// is done to both. Time is the daemon's own CPU time as the kernel counts it, never this program's.
//
// It reports and asserts nothing: a figure depends on the machine, so that a figure in a test would only measure that.
// With -write the figures go into docs/performance.md, whose other text is written by hand. It needs Linux and no root,
// and sends nothing beyond the loopback interface.
package main
