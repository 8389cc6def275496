package cluster

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
)

// nodeFacts is what of a node decides whether a DaemonSet keeps a pod on it.
type nodeFacts struct {
	name   string
	labels map[string]string
	taints []corev1.Taint
}

// refuses says why the DaemonSet controller would take a running pod off the node, as nodeShouldRunDaemonPod of
// kube-controller-manager decides it (pkg/controller/daemon/daemon_controller.go); "": it would not, or that cannot be
// told. Preferences do not count, nor do taints that only keep new pods away.
func (n *nodeFacts) refuses(pod *corev1.PodSpec) string {
	if pod.NodeName != "" && pod.NodeName != n.name {
		return fmt.Sprintf("the DaemonSet is for the node %s", pod.NodeName)
	}
	for key, value := range pod.NodeSelector {
		if got, ok := n.labels[key]; !ok || got != value {
			return fmt.Sprintf("the DaemonSet's node selector %s=%s does not select this node", key, value)
		}
	}
	if a := pod.Affinity; a != nil && a.NodeAffinity != nil && a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution != nil {
		terms := a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
		if !slices.ContainsFunc(terms, n.mayMatch) {
			return "the DaemonSet's node affinity does not select this node"
		}
	}
	for _, taint := range n.taints {
		if taint.Effect == corev1.TaintEffectNoExecute && !mayTolerate(pod.Tolerations, taint) {
			return fmt.Sprintf("the DaemonSet does not tolerate this node's taint %s", taint.ToString())
		}
	}
	return ""
}

// mayMatch says whether a term of a node selector selects the node. One that cannot be read may.
func (n *nodeFacts) mayMatch(term corev1.NodeSelectorTerm) bool {
	if len(term.MatchExpressions) == 0 && len(term.MatchFields) == 0 {
		return false // selects nothing, by definition
	}
	for _, e := range term.MatchExpressions {
		if matched, known := requirement(e, n.labels); known && !matched {
			return false
		}
	}
	for _, f := range term.MatchFields {
		if f.Key != metav1.ObjectNameField {
			continue // there is no other field to select a node by
		}
		if matched, known := requirement(f, map[string]string{f.Key: n.name}); known && !matched {
			return false
		}
	}
	return true
}

// requirement says whether a set of labels, or of fields, meets one requirement of a node selector, if that is known.
func requirement(r corev1.NodeSelectorRequirement, set map[string]string) (matched, known bool) {
	operator := map[corev1.NodeSelectorOperator]selection.Operator{
		corev1.NodeSelectorOpIn:           selection.In,
		corev1.NodeSelectorOpNotIn:        selection.NotIn,
		corev1.NodeSelectorOpExists:       selection.Exists,
		corev1.NodeSelectorOpDoesNotExist: selection.DoesNotExist,
		corev1.NodeSelectorOpGt:           selection.GreaterThan,
		corev1.NodeSelectorOpLt:           selection.LessThan,
	}[r.Operator]
	parsed, err := labels.NewRequirement(r.Key, operator, r.Values)
	if err != nil {
		return false, false
	}
	return parsed.Matches(labels.Set(set)), true
}

// mayTolerate says whether a taint is tolerated: also by the tolerations that the DaemonSet controller adds to every pod
// (https://kubernetes.io/docs/concepts/workloads/controllers/daemonset/#taints-and-tolerations), and by what this program
// does not know how to compare.
func mayTolerate(tolerations []corev1.Toleration, taint corev1.Taint) bool {
	if taint.Key == corev1.TaintNodeNotReady || taint.Key == corev1.TaintNodeUnreachable {
		return true
	}
	return slices.ContainsFunc(tolerations, func(t corev1.Toleration) bool {
		switch {
		case t.Effect != "" && t.Effect != taint.Effect, t.Key != "" && t.Key != taint.Key:
			return false
		case t.Operator == "" || t.Operator == corev1.TolerationOpEqual:
			return t.Value == taint.Value
		default:
			return true // Exists, and comparisons of numbers
		}
	})
}
