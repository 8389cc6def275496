// Package e2e holds the tests that go through the whole program: the real binary, with NET_ADMIN and nothing else, between
// real network namespaces, before stand-ins for AWS and for the API server that speak the real wire.
package e2e
