package e2e_test

import (
	"fmt"
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"pod2role/e2e/testnet"
	"pod2role/sandbox/cnirecord"
	"pod2role/sandbox/kubeapi"
)

// pod is a pod of the node, as scheduler, runtime and kubelet make it, one after the other: schedule, attach, report.
type pod struct {
	*testnet.Pod // nil before attach
	node         *node
	name         string
	object       *corev1.Pod
}

// pod returns a pod that runs; role "" is no annotation.
func (n *node) pod(t *testing.T, namespace, name, role string) *pod {
	t.Helper()
	p := n.schedule(t, namespace, name, role)
	p.attach(t)
	p.report(t)
	return p
}

// stranger returns something on the pods' network that is no pod of the cluster.
func (n *node) stranger(t *testing.T) *pod {
	t.Helper()
	return &pod{Pod: n.AddPod(t), node: n, name: "stranger", object: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "stranger"}}}
}

// schedule creates a pod that is bound to the node. It has no address yet.
func (n *node) schedule(t *testing.T, namespace, name, role string) *pod {
	t.Helper()
	p := &pod{node: n, name: name, object: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}}
	if role != "" {
		p.object.Annotations = map[string]string{"iam.amazonaws.com/role": role}
	}
	if err := n.api.StartPod(nodeName, p.object); err != nil {
		t.Fatal(err)
	}
	return p
}

// attach gives the pod its network, as the CNI plugin does, and then the record of it, as libcni does. The API server
// does not know yet.
func (p *pod) attach(t *testing.T, addrs ...netip.Addr) {
	t.Helper()
	p.Pod = p.node.AddPod(t, addrs...)
	if p.node.records != nil {
		if err := p.node.records.Add(p.attachment()); err != nil {
			t.Fatal(err)
		}
	}
}

func (p *pod) attachment() cnirecord.Attachment {
	return cnirecord.Attachment{
		UID: string(p.object.UID), Namespace: p.object.Namespace, Name: p.object.Name,
		HostInterface: p.HostInterface, Addrs: p.addrs(),
	}
}

func (p *pod) addrs() []netip.Addr {
	if p.Addr6.IsValid() {
		return []netip.Addr{p.Addr, p.Addr6}
	}
	return []netip.Addr{p.Addr}
}

// report tells the API server that the pod runs, and its addresses, as the kubelet does.
func (p *pod) report(t *testing.T) {
	t.Helper()
	if err := p.node.api.RunPod(p.object.Namespace, p.object.Name, p.addrs()...); err != nil {
		t.Fatal(err)
	}
}

// detach takes the pod's network back: first the plugin, then libcni the record. The API server still shows the pod.
func (p *pod) detach(t *testing.T) {
	t.Helper()
	p.node.Destroy(t, p.Pod)
	if p.node.records != nil {
		if err := p.node.records.Remove(p.attachment()); err != nil {
			t.Fatal(err)
		}
	}
}

// remove deletes the pod at the API server.
func (p *pod) remove(t *testing.T) {
	t.Helper()
	if err := p.node.api.Delete(kubeapi.Object(p.object)); err != nil {
		t.Fatal(err)
	}
}

// String implements fmt.Stringer.
func (p *pod) String() string { return fmt.Sprintf("pod %s/%s", p.object.Namespace, p.object.Name) }
