package cnirecord_test

import (
	"encoding/json"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"pod2role/sandbox/cnirecord"
)

func attachment() cnirecord.Attachment {
	return cnirecord.Attachment{
		UID: "u1", Namespace: "shop", Name: "cart", Sandbox: "0123456789abcdef", HostInterface: "veth1",
		Addrs: []netip.Addr{netip.MustParseAddr("10.1.2.3"), netip.MustParseAddr("fd00::7")},
	}
}

func read(t *testing.T, path string) map[string]any {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var record map[string]any
	if err := json.Unmarshal(data, &record); err != nil {
		t.Fatalf("%s is not whole JSON: %v", path, err)
	}
	return record
}

func TestRecordIsByteForByteWhatLibcniWrites(t *testing.T) {
	w := cnirecord.New(cnirecord.Config{Dir: filepath.Join(t.TempDir(), "results"), Version: "0.4.0"})
	a := attachment()
	a.Addrs = a.Addrs[:1]
	if err := w.Add(a); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(w.Path(a))
	if err != nil {
		t.Fatal(err)
	}
	want := `{"kind":"cniCacheV1","containerId":"0123456789abcdef",` +
		`"config":"eyJjbmlWZXJzaW9uIjoiMC40LjAiLCJuYW1lIjoia3ViZW5ldCIsInBsdWdpbnMiOlt7InR5cGUiOiJicmlkZ2UiLCJicmlkZ2UiOiJjbmkwIiwiaXNHYXRld2F5Ijp0cnVlLCJpcE1hc3EiOnRydWUsImlwYW0iOnsidHlwZSI6Imhvc3QtbG9jYWwifX1dfQ==",` +
		`"ifName":"eth0","networkName":"kubenet",` +
		`"cniArgs":[["IgnoreUnknown","1"],["K8S_POD_NAMESPACE","shop"],["K8S_POD_NAME","cart"],["K8S_POD_INFRA_CONTAINER_ID","0123456789abcdef"],["K8S_POD_UID","u1"]],` +
		`"capabilityArgs":{"dns":{"Options":null,"Searches":null,"Servers":["10.96.0.10"]},"io.kubernetes.cri.pod-annotations":{}},` +
		`"result":{"cniVersion":"0.4.0","dns":{},"interfaces":[{"mac":"5a:d2:0b:5e:00:00","name":"cni0"},{"mac":"5a:d2:0b:5e:00:01","name":"veth1"},` +
		`{"mac":"5a:d2:0b:5e:00:02","name":"eth0","sandbox":"/var/run/netns/cni-0123456789ab"}],` +
		`"ips":[{"address":"10.1.2.3/24","gateway":"10.1.2.1","interface":2,"version":"4"}],"routes":[{"dst":"0.0.0.0/0"}]}}`
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("record (-want +got):\n%s", diff)
	}
	if name := filepath.Base(w.Path(a)); name != "kubenet-0123456789abcdef-eth0" {
		t.Errorf("file is named %q", name)
	}
	for path, want := range map[string]os.FileMode{w.Path(a): 0o600, filepath.Dir(w.Path(a)): 0o700} {
		if stat, err := os.Stat(path); err != nil || stat.Mode().Perm() != want {
			t.Errorf("%s has mode %v, want %v (%v)", path, stat.Mode().Perm(), want, err)
		}
	}
}

func TestShapesTellInterfacesAsTheirPluginsDo(t *testing.T) {
	for _, tt := range []struct {
		name    string
		cfg     cnirecord.Config
		names   []string // of the interfaces, with * where a namespace is told
		address string
		on      any
	}{
		{name: "bridge", names: []string{"cni0", "veth1", "eth0*"}, address: "10.1.2.3/24", on: 2.0},
		{name: "ptp", cfg: cnirecord.Config{Shape: cnirecord.PTP}, names: []string{"veth1", "eth0*"}, address: "10.1.2.3/24", on: 1.0},
		{name: "AWS VPC CNI", cfg: cnirecord.Config{Shape: cnirecord.VPC}, names: []string{"veth1", "eth0*", "dummyveth1*"}, address: "10.1.2.3/32", on: 1.0},
		{name: "Calico", cfg: cnirecord.Config{Shape: cnirecord.Calico}, names: []string{"veth1"}, address: "10.1.2.3/32"},
		{name: "Azure", cfg: cnirecord.Config{Shape: cnirecord.Azure, Version: "0.3.1"}, names: []string{"eth0"}, address: "10.1.2.3/24"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.cfg.Dir = t.TempDir()
			w := cnirecord.New(tt.cfg)
			if err := w.Add(attachment()); err != nil {
				t.Fatal(err)
			}
			result := read(t, w.Path(attachment()))["result"].(map[string]any)
			var names []string
			for _, nic := range result["interfaces"].([]any) {
				nic := nic.(map[string]any)
				name := nic["name"].(string)
				if nic["sandbox"] != nil {
					name += "*"
				}
				names = append(names, name)
			}
			if diff := cmp.Diff(tt.names, names); diff != "" {
				t.Errorf("interfaces (-want +got):\n%s", diff)
			}
			ips := result["ips"].([]any)
			first := ips[0].(map[string]any)
			if len(ips) != 2 || first["address"] != tt.address || first["interface"] != tt.on {
				t.Errorf("addresses %v, want two, the first %s on interface %v", ips, tt.address, tt.on)
			}
		})
	}
}

func TestRecordsComeAndGo(t *testing.T) {
	for _, tt := range []struct {
		name string
		cfg  cnirecord.Config
		want int
	}{
		{name: "in place", want: 1},
		{name: "by rename", cfg: cnirecord.Config{Rename: true}, want: 1},
		{name: "with loopback", cfg: cnirecord.Config{Loopback: true}, want: 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.cfg.Dir = t.TempDir()
			w := cnirecord.New(tt.cfg)
			count := func(want int) {
				t.Helper()
				entries, err := os.ReadDir(tt.cfg.Dir)
				if err != nil || len(entries) != want {
					t.Errorf("files %v (%v), want %d", entries, err, want)
				}
			}
			for range 2 { // the second time over the first
				if err := w.Add(attachment()); err != nil {
					t.Fatal(err)
				}
			}
			count(tt.want)
			for range 2 {
				if err := w.Remove(attachment()); err != nil {
					t.Fatal(err)
				}
			}
			count(0)
		})
	}
}

func TestTornRecordIsFinishedInPlace(t *testing.T) {
	w := cnirecord.New(cnirecord.Config{Dir: t.TempDir()})
	for _, n := range []int{0, 100, 1 << 20} {
		finish, err := w.AddTorn(attachment(), n)
		if err != nil {
			t.Fatal(err)
		}
		before, err := os.ReadFile(w.Path(attachment()))
		if err != nil || json.Valid(before) != (n == 1<<20) {
			t.Errorf("after %d bytes the record is %q (%v)", n, before, err)
		}
		if err := finish(); err != nil {
			t.Fatal(err)
		}
		if kind := read(t, w.Path(attachment()))["kind"]; kind != "cniCacheV1" {
			t.Errorf("finished record is of kind %v", kind)
		}
	}
}
