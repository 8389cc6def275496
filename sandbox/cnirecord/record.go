package cnirecord

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
)

// Shape is which plugin's result a record holds: where the host's end of the pod's interface is told, and how.
type Shape int

const (
	// Bridge is containernetworking's bridge plugin: the bridge, the host's veth, the pod's interface.
	Bridge Shape = iota
	// PTP is its ptp plugin, and Cilium: the host's veth, the pod's interface.
	PTP
	// VPC is the AWS VPC CNI: as PTP, then a dummy that carries numbers for DEL and no interface at all.
	VPC
	// Calico tells the host's veth alone, and of no address on which interface it is.
	Calico
	// Azure tells the pod's interface without its namespace, as if it were the host's.
	Azure
)

// Attachment is one pod interface.
type Attachment struct {
	UID, Namespace, Name string       // the pod; UID "": a runtime that does not pass it (before containerd 1.5)
	Sandbox              string       // the runtime's ID of the pod's sandbox, default a hash of the UID
	HostInterface        string       // default "veth" and eight digits of Sandbox
	Addrs                []netip.Addr // as many as the pod has, of either family
}

// info is libcni's cachedInfo: the same fields in the same order.
type info struct {
	Kind           string         `json:"kind"`
	ContainerID    string         `json:"containerId"`
	Config         []byte         `json:"config"`
	IfName         string         `json:"ifName"`
	NetworkName    string         `json:"networkName"`
	NetNS          string         `json:"netns,omitempty"` // since libcni 1.2
	CNIArgs        [][2]string    `json:"cniArgs,omitempty"`
	CapabilityArgs map[string]any `json:"capabilityArgs,omitempty"`
	Result         map[string]any `json:"result,omitempty"` // a map: libcni sorts its keys
}

func (a Attachment) complete() Attachment {
	if a.Sandbox == "" {
		sum := sha256.Sum256([]byte(a.UID + a.Namespace + a.Name))
		a.Sandbox = hex.EncodeToString(sum[:])
	}
	a.HostInterface = cmp.Or(a.HostInterface, "veth"+a.Sandbox[:min(8, len(a.Sandbox))])
	return a
}

func (a Attachment) netns() string {
	return "/var/run/netns/cni-" + a.Sandbox[:min(12, len(a.Sandbox))]
}

// args are what containerd passes to plugins. Runtimes do so in no fixed order.
func (a Attachment) args() [][2]string {
	args := [][2]string{
		{"IgnoreUnknown", "1"},
		{"K8S_POD_NAMESPACE", a.Namespace},
		{"K8S_POD_NAME", a.Name},
		{"K8S_POD_INFRA_CONTAINER_ID", a.Sandbox},
	}
	if a.UID != "" {
		args = append(args, [2]string{"K8S_POD_UID", a.UID})
	}
	return args
}

// marshal returns the record of a on the writer's network.
func (w *Writer) marshal(a Attachment) ([]byte, error) {
	config := fmt.Sprintf(`{"cniVersion":%q,"name":%q,"plugins":[%s]}`, w.cfg.Version, w.cfg.Network, w.cfg.Shape.plugin())
	return w.encode(a, w.cfg.Network, w.cfg.Ifname, config, w.result(a))
}

// marshalLoopback returns the record that containerd keeps of every pod's loopback interface.
func (w *Writer) marshalLoopback(a Attachment) ([]byte, error) {
	config := `{"cniVersion":"0.3.1","name":"cni-loopback","plugins":[{"type":"loopback"}]}`
	return w.encode(a, loopbackNetwork, "lo", config, map[string]any{
		"cniVersion": "0.3.1",
		"dns":        map[string]any{},
		"interfaces": []any{map[string]any{"name": "lo", "mac": "00:00:00:00:00:00", "sandbox": a.netns()}},
		"ips": []any{
			map[string]any{"version": "4", "interface": 0, "address": "127.0.0.1/8"},
			map[string]any{"version": "6", "interface": 0, "address": "::1/128"},
		},
	})
}

func (w *Writer) encode(a Attachment, network, ifname, config string, result map[string]any) ([]byte, error) {
	rec := info{
		Kind: "cniCacheV1", ContainerID: a.Sandbox, Config: []byte(config), IfName: ifname, NetworkName: network, CNIArgs: a.args(),
		CapabilityArgs: map[string]any{
			"dns":                               map[string]any{"Servers": []string{"10.96.0.10"}, "Searches": nil, "Options": nil},
			"io.kubernetes.cri.pod-annotations": map[string]any{},
		},
		Result: result,
	}
	if w.cfg.Version >= "1" {
		rec.NetNS = a.netns()
	}
	data, err := json.Marshal(rec)
	if err != nil {
		return nil, fmt.Errorf("encoding the record of pod %s/%s: %w", a.Namespace, a.Name, err)
	}
	return data, nil
}

// plugin is the entry of the network's configuration.
func (s Shape) plugin() string {
	switch s {
	case PTP:
		return `{"type":"ptp","ipam":{"type":"host-local"}}`
	case VPC:
		return `{"type":"aws-cni","vethPrefix":"eni","mtu":"9001"},{"type":"portmap","capabilities":{"portMappings":true}}`
	case Calico:
		return `{"type":"calico","ipam":{"type":"calico-ipam"}},{"type":"portmap","capabilities":{"portMappings":true}}`
	case Azure:
		return `{"type":"azure-vnet","mode":"transparent"}`
	case Bridge:
	}
	return `{"type":"bridge","bridge":"cni0","isGateway":true,"ipMasq":true,"ipam":{"type":"host-local"}}`
}

// result is what the network's plugins return, in the form of the configured version of the specification.
func (w *Writer) result(a Attachment) map[string]any {
	host := map[string]any{"name": a.HostInterface, "mac": "5a:d2:0b:5e:00:01"}
	pod := map[string]any{"name": w.cfg.Ifname, "mac": "5a:d2:0b:5e:00:02", "sandbox": a.netns()}
	var interfaces []any
	at, bits := -1, 0 // which interface the addresses are on, and how wide their networks are; 0: one address
	switch w.cfg.Shape {
	case Bridge:
		interfaces, at, bits = []any{map[string]any{"name": "cni0", "mac": "5a:d2:0b:5e:00:00"}, host, pod}, 2, 24
	case PTP:
		interfaces, at, bits = []any{host, pod}, 1, 24
	case VPC:
		dummy := map[string]any{"name": "dummy" + strings.TrimPrefix(a.HostInterface, "eni"), "mac": "0", "sandbox": "0"}
		interfaces, at = []any{map[string]any{"name": a.HostInterface}, map[string]any{"name": w.cfg.Ifname, "sandbox": a.netns()}, dummy}, 1
	case Calico:
		interfaces = []any{map[string]any{"name": a.HostInterface}}
	case Azure:
		interfaces, bits = []any{map[string]any{"name": w.cfg.Ifname}}, 24
	}
	ips, routes := []any{}, []any{}
	for _, addr := range a.Addrs {
		version, destination, width := "4", "0.0.0.0/0", bits
		if addr.Is6() {
			version, destination, width = "6", "::/0", bits*64/24
		}
		if width == 0 {
			width = addr.BitLen()
		}
		prefix := netip.PrefixFrom(addr, width)
		ip := map[string]any{"address": prefix.String()}
		if bits != 0 {
			ip["gateway"] = prefix.Masked().Addr().Next().String()
		}
		if at >= 0 {
			ip["interface"] = at
		}
		if w.cfg.Version < "1" {
			ip["version"] = version
		}
		ips, routes = append(ips, ip), append(routes, map[string]any{"dst": destination})
	}
	result := map[string]any{"cniVersion": w.cfg.Version, "interfaces": interfaces, "ips": ips}
	if bits != 0 {
		result["routes"] = routes
	}
	if w.cfg.Version < "1" {
		result["dns"] = map[string]any{} // the older types do not leave it out
	}
	return result
}
