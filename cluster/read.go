package cluster

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"pod2role/mappings"
)

// readTimeout bounds a direct read: whoever asks has a pod waiting.
const readTimeout = 3 * time.Second

// PodsAt returns the pods of this node that have the address, without those that use the node's network or have
// finished. The slice is not to be modified. It does not allocate.
func (c *Cluster) PodsAt(addr netip.Addr) []*mappings.Pod { return c.pods.at(addr) }

// ReadPod asks the API server for a pod of this node by its name, and takes the answer into the view. (nil, nil):
// there is no such pod on this node, or the watch has shown its end meanwhile. At most 3 s.
func (c *Cluster) ReadPod(ctx context.Context, namespace, name string) (*mappings.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	pod, err := c.cfg.Client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		c.count("pod", "absent")
		return nil, nil
	}
	if err != nil {
		c.count("pod", "error")
		return nil, fmt.Errorf("reading pod %q of namespace %q: %w", name, namespace, err)
	}
	if pod.Spec.NodeName != c.cfg.Node {
		c.count("pod", "absent")
		return nil, nil
	}
	believed := c.pods.found(convertPod(pod, c.cfg.AnnotationKeys))
	if believed == nil {
		c.count("pod", "stale")
		return nil, nil
	}
	c.count("pod", "found")
	return believed, nil
}

// ReadAddr asks the API server for the pods of this node that have an address, and takes the answer into the view. It
// returns those that PodsAt would. At most 3 s.
func (c *Cluster) ReadAddr(ctx context.Context, addr netip.Addr) ([]*mappings.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	addr = addr.Unmap()
	selector := fields.OneTermEqualSelector("spec.nodeName", c.cfg.Node)
	if c.primary(addr) {
		selector = fields.AndSelectors(selector, fields.OneTermEqualSelector("status.podIP", addr.String()))
	}
	list, err := c.cfg.Client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{FieldSelector: selector.String()})
	if err != nil {
		c.count("address", "error")
		return nil, fmt.Errorf("reading the pods with address %s: %w", addr, err)
	}
	var out []*mappings.Pod
	for i := range list.Items {
		if list.Items[i].Spec.NodeName != c.cfg.Node {
			continue
		}
		pod := c.pods.found(convertPod(&list.Items[i], c.cfg.AnnotationKeys))
		if slices.Contains(live(pod), addr) {
			out = append(out, pod)
		}
	}
	if len(out) == 0 {
		c.count("address", "absent")
		return nil, nil
	}
	c.count("address", "found")
	return out, nil
}

// primary says that the API server can select pods by an address of this family: it knows only the first of a pod's
// addresses by status.podIP, and which family comes first is the same for all pods of a cluster. While no address has
// been seen the answer is no, and all pods of the node are read.
func (c *Cluster) primary(addr netip.Addr) bool {
	c.pods.mu.RLock()
	defer c.pods.mu.RUnlock()
	for _, known := range c.pods.pods {
		if len(live(known.pod)) > 0 {
			return known.pod.Addrs[0].Is4() == addr.Is4()
		}
	}
	return false
}
