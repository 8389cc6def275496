package cni

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

const readerUID = "174eecc3-58fa-42d1-8501-7f9004a28b76"

var addrCmp = cmp.Options{cmpopts.EquateComparable(netip.Addr{}), cmpopts.EquateEmpty(), cmp.AllowUnexported(grant{})}

// The files in testdata are written from the CNI specification of each version and from what the named plugins return.
func TestRecordsOfEverySpecificationVersionAreRead(t *testing.T) {
	for _, tt := range []struct {
		name string
		want []grant
		ends []string
	}{
		{"v010-s010-eth0", []grant{{netip.MustParseAddr("10.1.0.10"), ""}}, nil},
		{"v020-s020-eth0", []grant{{netip.MustParseAddr("10.1.0.20"), ""}, {netip.MustParseAddr("fd00:1::20"), ""}}, nil},
		{"v030-s030-eth0", []grant{{netip.MustParseAddr("10.1.0.30"), "vethaa01"}}, []string{"vethaa01"}},             // bridge, with a bridge named in the configuration
		{"v031-s031-eth0", []grant{{netip.MustParseAddr("10.1.0.31"), "cali0123456789a"}}, nil},                       // Calico
		{"v040-s040-eth0", []grant{{netip.MustParseAddr("10.1.0.40"), "eni0123456789a"}}, []string{"eni0123456789a"}}, // AWS VPC CNI
		{"v100-s100-eth0", []grant{{netip.MustParseAddr("10.1.0.100"), "veth1000"}, {netip.MustParseAddr("fd00:1::100"), "veth1000"}}, []string{"veth1000"}},
		{"v110-s110-eth0", []grant{{netip.MustParseAddr("10.1.0.110"), "lxc110"}, {netip.MustParseAddr("169.254.172.5"), "vethegress"}}, []string{"lxc110", "vethegress"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			data, err := os.ReadFile(filepath.Join("testdata", tt.name))
			if err != nil {
				t.Fatal(err)
			}
			rec, grants, why := parse(tt.name, data)
			if why != accepted {
				t.Fatalf("skipped as %q", why)
			}
			if diff := cmp.Diff(tt.want, grants, addrCmp); diff != "" {
				t.Errorf("addresses (-want +got):\n%s", diff)
			}
			parts := strings.Split(tt.name, "-")
			want := Record{
				UID: readerUID, Namespace: "shop", Name: "reader-0",
				Network: parts[0], Sandbox: parts[1], Ifname: parts[2], Addrs: addrs(tt.want),
				HostInterfaces: tt.ends,
			}
			if diff := cmp.Diff(want, rec, addrCmp); diff != "" {
				t.Errorf("record (-want +got):\n%s", diff)
			}
		})
	}
}

// record returns what libcni would write for a pod behind the ptp plugin.
func record(uid, sandbox string, cidrs ...string) []byte {
	var ips []string
	for _, cidr := range cidrs {
		ips = append(ips, fmt.Sprintf(`{"interface":1,"address":%q}`, cidr))
	}
	return fmt.Appendf(nil, `{"kind":"cniCacheV1","containerId":%q,"config":"e30=","ifName":"eth0","networkName":"net",`+
		`"cniArgs":[["K8S_POD_NAMESPACE","shop"],["K8S_POD_NAME",%q],["K8S_POD_UID",%q]],"result":{"cniVersion":"1.0.0",`+
		`"interfaces":[{"name":%q},{"name":"eth0","sandbox":"/run/netns/x"}],"ips":[%s]}}`,
		sandbox, "pod-"+uid, uid, "veth-"+sandbox, strings.Join(ips, ","))
}

func TestWhatIsNoWholeRecordIsSkippedWithItsReason(t *testing.T) {
	whole := string(record("u1", "s1", "10.0.0.1/24"))
	for _, tt := range []struct {
		name, file, data string
		want             reason
		grants           int
	}{
		{"whole", "net-s1-eth0", whole, accepted, 1},
		// Left behind by a reboot: https://github.com/containernetworking/cni/issues/1055
		{"empty", "net-s1-eth0", "", torn, 0},
		{"half", "net-s1-eth0", whole[:len(whole)/2], torn, 0},
		{"all but the last byte", "net-s1-eth0", whole[:len(whole)-1], torn, 0},
		{"followed by the end of a longer one", "net-s1-eth0", whole + `"}}`, torn, 0},
		{"another kind", "net-s1-eth0", strings.Replace(whole, "cniCacheV1", "cniCacheV9", 1), foreign, 0},
		{"a copy under another name", "net-s1-eth0.bak", whole, foreign, 0},
		{"not an object", "net-s1-eth0", `["kind"]`, foreign, 0},
		{"some other document", "net-s1-eth0", `{"name":"cbr0"}`, foreign, 0},
		{"null", "net-s1-eth0", `null`, foreign, 0},
		{"a bare result of libcni before 0.8", "net-s1-eth0", `{"cniVersion":"0.4.0","ips":[{"address":"10.0.0.1/24"}]}`, anonymous, 1},
		{"a bare result that cannot be read", "net-s1-eth0", `{"cniVersion":"0.4.0","ips":[{"address":"10.0.0.1"}]}`, malformed, 0},
		{"of a container that is no pod", "net-s1-eth0", strings.ReplaceAll(whole, "K8S_POD_", "NERDCTL_"), anonymous, 1},
		{"without the UID", "net-s1-eth0", strings.Replace(whole, "K8S_POD_UID", "IgnoreUnknown", 1), anonymous, 1},
		{"two UIDs", "net-s1-eth0", strings.Replace(whole, `["K8S_POD_UID"`, `["K8S_POD_UID","u2"],["K8S_POD_UID"`, 1), malformed, 0},
		{"an address without its prefix", "net-s1-eth0", strings.Replace(whole, "10.0.0.1/24", "10.0.0.1", 1), malformed, 0},
		{"no address at all", "net-s1-eth0", strings.Replace(whole, "10.0.0.1/24", "0.0.0.0/0", 1), malformed, 0},
		{"a list where an address belongs", "net-s1-eth0", strings.Replace(whole, `"10.0.0.1/24"`, `[]`, 1), malformed, 0},
		{"the host's address", "net-s1-eth0", strings.Replace(whole, `"interface":1`, `"interface":0`, 1), accepted, 0},
		{"another address of the loopback interface", "net-s1-eth0", strings.Replace(whole, `"eth0","sandbox"`, `"lo","sandbox"`, 1), accepted, 0},
		{"the loopback address", "net-s1-eth0", strings.Replace(whole, "10.0.0.1/24", "127.0.0.1/8", 1), accepted, 0},
		{"too many addresses", "net-s1-eth0", string(record("u1", "s1", strings.Split(strings.Repeat("10.0.0.1/24 ", 65), " ")[:65]...)), malformed, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rec, grants, why := parse(tt.file, []byte(tt.data))
			if why != tt.want || len(grants) != tt.grants {
				t.Errorf("got reason %q with %d addresses, want %q with %d", why, len(grants), tt.want, tt.grants)
			}
			if why != accepted && rec.UID != "" {
				t.Errorf("skipped as %q, but names pod %q", why, rec.UID)
			}
		})
	}
}

func TestTheHostsEndIsNamedOnlyIfTheRecordTells(t *testing.T) {
	host := func(name string) netInterface { return netInterface{Name: name} }
	inside := func(name string) netInterface { return netInterface{Name: name, Sandbox: "/run/netns/x"} }
	const flannel = `"eyJwbHVnaW5zIjpbeyJ0eXBlIjoiZmxhbm5lbCIsImRlbGVnYXRlIjp7ImJyaWRnZSI6ImZsMCJ9fV19"` // {"plugins":[{"type":"flannel","delegate":{"bridge":"fl0"}}]}
	for _, tt := range []struct {
		name   string
		nics   []netInterface
		at     int
		config string
		want   string
	}{
		{"no interfaces", nil, -1, "", ""},
		{"ptp", []netInterface{host("veth1"), inside("eth0")}, 1, "", "veth1"},
		{"ptp, address without interface", []netInterface{host("veth1"), inside("eth0")}, -1, "", "veth1"},
		{"bridge by its default name", []netInterface{host("cni0"), host("veth1"), inside("eth0")}, 2, "", "veth1"},
		{"flannel's bridge", []netInterface{host("fl0"), host("veth1"), inside("eth0")}, 2, flannel, "veth1"},
		{"two candidates", []netInterface{host("br9"), host("veth1"), inside("eth0")}, 2, "", ""},
		{"two candidates, unreadable configuration", []netInterface{host("br9"), host("veth1"), inside("eth0")}, 2, `"!"`, ""},
		{"only the host's end", []netInterface{host("cali1")}, -1, "", "cali1"},
		{"only the pod's end", []netInterface{inside("eth0")}, 0, "", ""},
		{"only the pod's end, without its sandbox", []netInterface{host("eth0")}, -1, "", ""},
		{"another interface inside", []netInterface{host("veth1"), inside("net1")}, -1, "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := result{Interfaces: tt.nics}.hostEnd(tt.at, "eth0", []byte(tt.config))
			if got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	files, err := filepath.Glob("testdata/v*")
	if err != nil || len(files) == 0 {
		f.Fatal("no fixtures", err)
	}
	for _, path := range files {
		data, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(filepath.Base(path), data)
	}
	f.Add("a-b-c", []byte(`{"cniVersion":"0.2.0","ip4":{"ip":"10.0.0.1/8"}}`))
	f.Add("a-b-c", []byte(`{"kind":"cniCacheV1","result":{"interfaces":[null],"ips":[{"interface":-1}]}}`))
	f.Fuzz(func(t *testing.T, name string, data []byte) {
		rec, grants, why := parse(name, data)
		if why == accepted && (rec.UID == "" || rec.Namespace == "" || rec.Name == "" || name != rec.Network+"-"+rec.Sandbox+"-"+rec.Ifname) {
			t.Errorf("accepted %+v from file %q", rec, name)
		}
		if why != accepted && rec.UID != "" {
			t.Errorf("skipped as %q, but names pod %q", why, rec.UID)
		}
		if why != accepted && why != anonymous && len(grants) > 0 {
			t.Errorf("skipped as %q, but grants %v", why, grants)
		}
		for _, g := range grants {
			if !g.addr.IsValid() || g.addr.Is4In6() || g.addr.IsUnspecified() || g.addr.Zone() != "" {
				t.Errorf("grants %v", g.addr)
			}
		}
	})
}
