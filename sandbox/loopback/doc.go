// Package loopback is what the sandbox's servers share: it serves a handler until a context ends, and records what
// reached it.
//
// [Serve] owns every connection that it accepts and has ended them all when it returns. A [Journal] keeps the latest
// entries in bounded memory and lets a caller wait for an entry instead of sleeping. The package knows nothing of AWS
// or Kubernetes; its neighbours are the servers beside it.
package loopback
