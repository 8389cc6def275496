package cluster

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Location is where this node says that it is. What it does not say is empty.
type Location struct {
	Zone       string // the label topology.kubernetes.io/zone
	Region     string // the label topology.kubernetes.io/region
	ProviderID string // spec.providerID: on EC2, aws:///zone/instance-id
}

// ReadLocation asks the API server where this node is. It needs the right to get nodes. At most 3 s.
func (c *Cluster) ReadLocation(ctx context.Context) (Location, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	node, err := c.cfg.Client.CoreV1().Nodes().Get(ctx, c.cfg.Node, metav1.GetOptions{})
	if err != nil {
		return Location{}, fmt.Errorf("reading node %q: %w", c.cfg.Node, err)
	}
	return Location{
		Zone: node.Labels[corev1.LabelTopologyZone], Region: node.Labels[corev1.LabelTopologyRegion], ProviderID: node.Spec.ProviderID,
	}, nil
}
