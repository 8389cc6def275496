package cni

import (
	"encoding/json"
	"errors"
	"net/netip"
	"slices"
	"time"
)

// Record is what libcni noted of one interface of one pod.
type Record struct {
	UID       string // the pod's UID, never empty in what an Index returns
	Namespace string
	Name      string

	Sandbox string // the runtime's ID of the pod's sandbox
	Network string // the name of the CNI network
	Ifname  string // the interface's name inside the pod

	// HostInterface is the name of the interface's other end on the host, "" where the record does not tell.
	HostInterface string
	// HostInterfaces are the host's ends of all the interfaces that the pod was given, by chained plugins too.
	HostInterfaces []string

	Addrs []netip.Addr // given to this interface, IPv4-mapped ones unmapped; not to be modified
	File  string       // the record's path
	Given time.Time    // when the record was written: the file's modification time
}

// reason says why a file is not used as a record. The values are metric labels.
type reason string

const (
	accepted  reason = ""
	symlink   reason = "symlink"    // a symbolic link, which libcni never makes
	irregular reason = "irregular"  // a directory, a pipe or the like
	oversized reason = "oversized"  // larger than any record
	unread    reason = "unreadable" // open or read failed
	torn      reason = "torn"       // not whole JSON: being written, or left behind by a crash
	foreign   reason = "foreign"    // whole JSON, but no record, or one under a name that is not its own
	malformed reason = "malformed"  // a record that contradicts the specification
	anonymous reason = "anonymous"  // a record that names no pod: older than libcni 0.8, or of another container
)

func reasons() []reason {
	return []reason{symlink, irregular, oversized, unread, torn, foreign, malformed, anonymous}
}

// grant is one address and the host's end of the interface that it was given to.
type grant struct {
	addr netip.Addr
	host string
}

// kind is what libcni calls its records, since 0.8.
const kind = "cniCacheV1"

// maxGrants bounds the addresses of one interface; a record with more is malformed.
const maxGrants = 64

// cached is libcni's cachedInfo, of kind cniCacheV1.
type cached struct {
	Kind        string          `json:"kind"`
	ContainerID string          `json:"containerId"`
	Config      json.RawMessage `json:"config"` // the network's configuration as a base64 string
	IfName      string          `json:"ifName"`
	NetworkName string          `json:"networkName"`
	CNIArgs     [][2]string     `json:"cniArgs"`
	Result      result          `json:"result"`
	result                      // libcni before 0.8 wrote the bare result
}

// result is the outcome of ADD: interfaces and ips since 0.3.0, ip4 and ip6 before.
type result struct {
	Interfaces []netInterface `json:"interfaces"`
	IPs        []struct {
		Interface *int   `json:"interface"`
		Address   string `json:"address"`
	} `json:"ips"`
	IP4 *legacyIP `json:"ip4"`
	IP6 *legacyIP `json:"ip6"`
}

type netInterface struct {
	Name    string `json:"name"`
	Sandbox string `json:"sandbox"` // "": on the host
}

type legacyIP struct {
	IP string `json:"ip"`
}

func (r result) empty() bool {
	return len(r.Interfaces) == 0 && len(r.IPs) == 0 && r.IP4 == nil && r.IP6 == nil
}

// parse reads the content of the file called name. An anonymous record carries its grants, since they end those of
// older records; with any other reason nothing is returned.
func parse(name string, data []byte) (Record, []grant, reason) {
	var c cached
	if err := json.Unmarshal(data, &c); err != nil {
		if syntax := (*json.SyntaxError)(nil); errors.As(err, &syntax) {
			return Record{}, nil, torn
		}
		if c.Kind == kind {
			return Record{}, nil, malformed
		}
		return Record{}, nil, foreign
	}
	if c.Kind == "" && !c.empty() {
		grants, ok := c.grants("", nil)
		if !ok {
			return Record{}, nil, malformed
		}
		return Record{Addrs: addrs(grants)}, grants, anonymous
	}
	// A copy of a record under another name would outlive the address: nothing removes it.
	if c.Kind != kind || name != c.NetworkName+"-"+c.ContainerID+"-"+c.IfName {
		return Record{}, nil, foreign
	}
	rec := Record{Sandbox: c.ContainerID, Network: c.NetworkName, Ifname: c.IfName, HostInterfaces: c.Result.hostEnds(c.Config)}
	grants, ok := c.Result.grants(c.IfName, c.Config)
	if !ok || !rec.identify(c.CNIArgs) {
		return Record{}, nil, malformed
	}
	rec.Addrs = addrs(grants)
	if rec.UID == "" || rec.Namespace == "" || rec.Name == "" {
		rec.UID = ""
		return rec, grants, anonymous
	}
	return rec, grants, accepted
}

// identify takes the pod from the arguments that the runtime passed; false: they contradict each other.
func (rec *Record) identify(args [][2]string) bool {
	for _, arg := range args {
		var field *string
		switch arg[0] {
		case "K8S_POD_UID":
			field = &rec.UID
		case "K8S_POD_NAMESPACE":
			field = &rec.Namespace
		case "K8S_POD_NAME":
			field = &rec.Name
		default:
			continue
		}
		if *field != "" && *field != arg[1] {
			return false
		}
		*field = arg[1]
	}
	return true
}

// grants returns the addresses of the pod's interface called ifname; false: one cannot be read. Addresses of the host,
// and of the loopback interface, for which containerd has a record of its own per pod, are left out.
func (r result) grants(ifname string, config json.RawMessage) ([]grant, bool) {
	var out []grant
	for _, ip := range r.IPs {
		at := -1
		if ip.Interface != nil && *ip.Interface >= 0 && *ip.Interface < len(r.Interfaces) {
			at = *ip.Interface
			// Azure's plugin names the pod's interface without its sandbox.
			if on := r.Interfaces[at]; on.Sandbox == "" && on.Name != ifname || on.Name == "lo" {
				continue
			}
		}
		if !appendGrant(&out, ip.Address, func() string { return r.hostEnd(at, ifname, config) }) {
			return nil, false
		}
	}
	for _, ip := range []*legacyIP{r.IP4, r.IP6} {
		if ip != nil && !appendGrant(&out, ip.IP, func() string { return "" }) {
			return nil, false
		}
	}
	return out, len(out) <= maxGrants
}

func appendGrant(out *[]grant, cidr string, host func() string) bool {
	prefix, err := netip.ParsePrefix(cidr)
	if err != nil {
		return false
	}
	addr := prefix.Addr().Unmap()
	if addr == netip.AddrFrom4([4]byte{127, 0, 0, 1}) || addr == netip.IPv6Loopback() {
		return true
	}
	if addr.IsUnspecified() || addr.IsMulticast() {
		return false
	}
	*out = append(*out, grant{addr: addr, host: host()})
	return true
}

func addrs(grants []grant) []netip.Addr {
	var out []netip.Addr
	for _, g := range grants {
		out = append(out, g.addr)
	}
	return out
}

// hostEnd returns the host's end of the pod's interface at index at (-1: not told), or "". Plugins list the interfaces
// they made in order, and the host's end directly before the pod's: bridge lists the bridge, the veth and the pod's
// interface; ptp, Cilium and the AWS VPC CNI the veth and the pod's interface; Calico the veth alone; macvlan and
// SR-IOV only the pod's. What chained plugins add comes after.
func (r result) hostEnd(at int, ifname string, config json.RawMessage) string {
	var inside bool
	for i, nic := range r.Interfaces {
		inside = inside || nic.Sandbox != ""
		if at < 0 && nic.Sandbox != "" && nic.Name == ifname {
			at = i
		}
	}
	if at < 0 {
		if inside {
			return ""
		}
		at = len(r.Interfaces)
	}
	first := at
	for first > 0 && r.Interfaces[first-1].Sandbox == "" {
		first--
	}
	ends := r.Interfaces[first:at]
	if len(ends) > 1 {
		ends = withoutBridges(ends, config)
	}
	if len(ends) != 1 || ends[0].Name == ifname {
		return ""
	}
	return ends[0].Name
}

// hostEnds returns the host's ends of all interfaces inside.
func (r result) hostEnds(config json.RawMessage) []string {
	var ends []string
	for i, nic := range r.Interfaces {
		if nic.Sandbox == "" {
			continue
		}
		if end := r.hostEnd(i, nic.Name, config); end != "" {
			ends = append(ends, end)
		}
	}
	return ends
}

// withoutBridges leaves out the interfaces that the network's configuration names as bridges, and the bridge plugin's
// default.
func withoutBridges(nics []netInterface, config json.RawMessage) []netInterface {
	type plugin struct {
		Bridge   string `json:"bridge"`
		Delegate struct {
			Bridge string `json:"bridge"`
		} `json:"delegate"` // flannel
	}
	var network struct {
		plugin
		Plugins []plugin `json:"plugins"`
	}
	var text []byte
	if json.Unmarshal(config, &text) == nil {
		_ = json.Unmarshal(text, &network) // unreadable: only the default is known
	}
	bridges := []string{"cni0"}
	for _, p := range append(network.Plugins, network.plugin) {
		bridges = append(bridges, p.Bridge, p.Delegate.Bridge)
	}
	var out []netInterface
	for _, nic := range nics {
		if !slices.Contains(bridges, nic.Name) {
			out = append(out, nic)
		}
	}
	return out
}
