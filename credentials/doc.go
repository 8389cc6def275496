// Package credentials keeps a live STS session for every role in use on the node.
//
// A [Cache] holds one session per [Key], fetched by one flight that no impatient caller can cancel, renewed in the
// background while somebody refers to the key, and served through an outage of STS until shortly before it expires.
// The AWS SDK lives only here. The package knows nothing of pods, addresses or HTTP, and prints no secret.
package credentials
