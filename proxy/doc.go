// Package proxy answers, on the node, the HTTP requests that pods meant for EC2's metadata service.
//
// Who is asking is decided by the TCP connection alone, and what is asked for by one classifier on the canonical path,
// both anew for each request. Credentials come from the daemon's own cache, session tokens are its own, and everything
// else is either a document of the real service that carries no secret or refused. What it guarantees:
//
//   - A request that names a secret in any spelling never reaches the real service: nothing that a client wrote does
//     but the canonical path, which is built anew from what was understood.
//   - A pod is served nothing but its own role, and is told nothing of other pods, of the node's role or of what STS
//     said. Those go to the log.
//   - Answers have the bytes, headers and statuses that AWS's SDKs expect of EC2
//     (https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/instancedata-data-retrieval.html); none is a redirect.
//   - A client that is slow, or that asks too much, harms itself only.
//
// It refuses to guess: a pod that is not known yet is held, and then told to come again. Who a pod is and what it may
// have is the business of identity and mappings; sessions are credentials'. It knows nothing of the cluster, of STS or
// of the rules that redirect the traffic.
package proxy
