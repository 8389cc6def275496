// Package cnirecord writes the records that a container runtime leaves on a node of the addresses it gave to pods.
//
// libcni, through which containerd, CRI-O and cri-dockerd call every CNI plugin, keeps one JSON file per pod interface
// (containernetworking/cni libcni/api.go, cacheAdd and cacheDel): written in place by os.WriteFile when ADD succeeded,
// removed after DEL. The files here have the same name, mode and fields, with the results that common plugins return.
// As faults it writes in two halves, by rename, or never removes.
//
// It writes nothing but these files, in the directory it is given; their reader is package cni.
package cnirecord
