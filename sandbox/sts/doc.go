// Package sts is AWS's Security Token Service on loopback, for the demo and for tests.
//
// It speaks the AWS Query protocol as STS does for AssumeRole, AssumeRoleWithWebIdentity and GetCallerIdentity:
// validation, trust, the one-hour cap on chained roles, and errors with their codes and statuses. Every part of the
// credentials that it gives says whose session it is ([Decode]), but for the access key ID of a session too long to fit
// it, so that a test can tell from what a pod holds which role, session name, external ID and tags it was asked for
// with. Calls are recorded, and faults can be scripted while it runs.
//
// It looks at the access key and the scope of a signature, and does not verify the signature. Its credentials work
// nowhere. It never sends a request. The stand-in for the metadata service is sandbox/imds.
package sts
