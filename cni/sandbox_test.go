package cni_test

import (
	"net/netip"
	"sync"
	"testing"
	"time"

	"pod2role/cni"
	"pod2role/sandbox/cnirecord"
)

// The sandbox writes what the runtimes write; here the two are held together.
func TestTheRecordsOfEveryPluginAreRead(t *testing.T) {
	for _, tt := range []struct {
		name  string
		shape cnirecord.Shape
		host  string
	}{
		{"bridge", cnirecord.Bridge, "veth7"},
		{"ptp", cnirecord.PTP, "veth7"},
		{"AWS VPC CNI", cnirecord.VPC, "veth7"},
		{"Calico", cnirecord.Calico, "veth7"},
		{"Azure", cnirecord.Azure, ""},
	} {
		for _, version := range []string{"0.3.1", "0.4.0", "1.0.0", "1.1.0"} {
			for _, rename := range []bool{false, true} {
				t.Run(tt.name+" "+version, func(t *testing.T) {
					dir, changed := t.TempDir(), make(chan struct{}, 100)
					index, err := cni.New(cni.Config{Dirs: []string{dir}, Rescan: time.Hour, OnChange: func() { changed <- struct{}{} }})
					if err != nil {
						t.Fatal(err)
					}
					var running sync.WaitGroup
					running.Go(func() { _ = index.Run(t.Context()) })
					t.Cleanup(running.Wait) // the test's context has ended by then
					<-index.Ready()

					v4, v6 := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::1")
					runtime := cnirecord.New(cnirecord.Config{Dir: dir, Shape: tt.shape, Version: version, Loopback: true, Rename: rename})
					pod := cnirecord.Attachment{UID: "u1", Namespace: "shop", Name: "a", HostInterface: "veth7", Addrs: []netip.Addr{v4, v6}}
					if err := runtime.Add(pod); err != nil {
						t.Fatal(err)
					}
					<-changed
					for _, addr := range []netip.Addr{v4, v6} {
						if rec, ok := index.Lookup(addr); !ok || rec.UID != "u1" || rec.Name != "a" || rec.HostInterface != tt.host {
							t.Errorf("%s: got %+v, %v", addr, rec, ok)
						}
					}
					if _, ok := index.Lookup(netip.MustParseAddr("127.0.0.1")); ok {
						t.Error("the loopback address is a pod's")
					}
					if err := runtime.Remove(pod); err != nil {
						t.Fatal(err)
					}
					for range changed {
						if _, ok := index.Lookup(v4); !ok {
							break
						}
					}
				})
			}
		}
	}
}
