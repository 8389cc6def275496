// Package kubeapi is a Kubernetes API server on loopback for the demo and for tests.
//
// It speaks the wire protocol as client-go does: JSON and protobuf by
// negotiation, full objects and PartialObjectMetadata, lists with resource
// versions and pages, watches with bookmarks and streamed initial events
// (https://kubernetes.io/docs/reference/using-api/api-concepts/). Real
// informers, clients and event recorders cannot tell it from kube-apiserver as
// far as they look at pods, namespaces, nodes, daemonsets and events; kubectl
// get, describe, annotate, label and taint work as well.
//
// What is in the cluster, and what goes wrong in it, is scripted from Go: Apply,
// Update, Delete and the life of a pod as the kubelet would report it (StartPod
// to RemovePod); lagging or frozen watches, dropped connections, outages, stale
// reads, compacted history, revoked tokens and refused verbs. Every request is
// recorded, and what is awaited is awaited by WaitFor, never by sleeping.
//
// It refuses what it does not know with the Status that kube-apiserver would
// send. There is no admission, no defaulting, no scheduler, no kubelet, no
// garbage collection and no quota; PUT and DELETE over the wire answer 405.
//
// A Server starts nothing until Run; nothing in this package is shared between
// two Servers. The records that the container runtime leaves on a node are
// written by the sibling package cnirecord.
package kubeapi
