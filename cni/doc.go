// Package cni knows, from the records that libcni keeps on the node, which pod was given which address.
//
// containerd, CRI-O and cri-dockerd call every CNI plugin through libcni, which writes one JSON file per interface of
// a pod when its address has been given, before any container of the pod starts, and removes it when the address has
// been taken back. An [Index] reads those files and follows them through inotify. What it says is therefore neither
// late nor stale, and needs neither the API server nor the runtime's socket.
//
// It guarantees that an address answers for the pod it was given to last, or not at all. Of two records for one
// address the newer stands; where that cannot be told neither does; and when the newer record goes away the older one
// does not come back, although its file may still exist, because an address is given anew only after it was released.
// A directory that cannot be watched answers nothing, because its records could outlive the addresses unnoticed. Of an
// address whose record is gone it remembers whose that was ([Index.TakenBack]), against sources that are late.
//
// It refuses, counts and otherwise ignores what is not a whole record: half-written, foreign, oversized and malformed
// files, symbolic links and whatever is not a regular file. It writes nothing, talks to no runtime, and does not know
// whether a pod still lives: that is the cluster's to say.
//
// The format is that of https://github.com/containernetworking/cni/blob/main/libcni/api.go (cachedInfo), its results
// those of the CNI specification, 0.1.0 to 1.1.0.
package cni
