// Package identity tells which pod is asking, by joining the CNI's records, the cluster's view and the kernel's word.
//
// A [Resolver] turns the source address of a request into the one [mappings.Decision] of that request. A record of the
// CNI comes first, since it is neither late nor stale; only an address without one is looked up among the pods that the
// API server has reported. What is not known yet is no error: the request is held, wakes with every change of a source
// ([Resolver.Wake]; nothing polls), and meanwhile the API server is asked directly, once for all who wait for the same
// answer and within limits.
//
// It never guesses. Two live pods with one address, a record whose pod is not known, a claim that the kernel refutes,
// an answer about another pod of the same name, an address that the CNI has taken back from the pod that the API server
// still shows there: each is held, and ends as Pending or Ambiguous, never as somebody's role. Pods that are known keep
// working while the API server is away.
//
// The goroutines it starts are its direct reads; the last request that waits for one ends it.
package identity
