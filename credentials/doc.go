// Package credentials keeps a live STS session for every role in use on the node.
//
// A [Cache] holds one session per [Key]. It guarantees:
//
//   - One call to STS per key at a time, which belongs to nobody who waits for it: a caller who leaves ends neither the
//     call nor anybody else's wait. [Cache.Get] with a session at hand takes one lock and allocates nothing.
//   - A session is renewed from the half of its life, with jitter, while an owner refers to it ([Cache.Refer]) or
//     somebody asks for it, so that an hour's session is served with 25 minutes left or more. Below 10 minutes
//     (Config.Floor) it is served only while STS fails or is slow; below one minute (Config.Stop), never. Lives shorter
//     than an hour shrink all of this in proportion. Expiry is judged by the wall clock and by the monotonic one.
//   - While STS fails, what is held is served, and calls are repeated with growing, jittered pauses. What kind of
//     failure it is ([Kind]) follows from the code of the answer. Refusals are remembered for 15 to 60 seconds.
//   - A role that STS refuses to renew is given up after Config.RevocationGrace, unless the refusal may be a fault of the
//     node's own policy; revocation.go says how the two are told apart. With one role in use there is nothing to tell
//     them apart by, and the refusal is taken at its word.
//   - Calls of the node are limited in number per second. Those for which a pod waits go first, then renewals, then what
//     is fetched ahead, each in the order in which it became due; a role that fails goes to the end of its queue.
//   - What nobody refers to and nobody asks for is dropped.
//
// It refuses to serve what has expired, to share a session between keys that differ in anything, and to print a secret.
//
// The AWS SDK lives only here: [STS] is what a cache calls in production. The package knows nothing of pods, addresses
// or HTTP: package mappings decides which key a pod may have, and package proxy turns a [Session] into an answer.
package credentials
