// Package imds is the EC2 instance metadata service on loopback, for the demo and for tests.
//
// It speaks IMDSv1 and IMDSv2 as EC2 does: the documented tree, both slash forms, session tokens, the refusal of
// forwarded requests, the error bodies and the headers. Every secret in it carries a marker ([Markers]), and every
// request that arrives is recorded with whether what it names is a secret, so that a test can assert that no pod ever
// reached one. With [Lenient] paths it is an oracle for path tricks: it understands each request in the worst of all
// readings that some HTTP server is known to make.
//
// Its credentials work nowhere and its signatures verify nowhere. It never sends a request. The stand-in for STS is
// sandbox/sts.
package imds
