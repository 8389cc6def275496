package cluster

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestWhetherADaemonSetKeepsItsPodOnANode(t *testing.T) {
	require := func(terms ...corev1.NodeSelectorTerm) corev1.PodSpec {
		return corev1.PodSpec{Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: terms},
		}}}
	}
	where := func(key string, operator corev1.NodeSelectorOperator, values ...string) corev1.NodeSelectorTerm {
		return corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: key, Operator: operator, Values: values}}}
	}
	named := func(key string, operator corev1.NodeSelectorOperator, values ...string) corev1.NodeSelectorTerm {
		return corev1.NodeSelectorTerm{MatchFields: []corev1.NodeSelectorRequirement{{Key: key, Operator: operator, Values: values}}}
	}
	tolerate := func(t ...corev1.Toleration) corev1.PodSpec { return corev1.PodSpec{Tolerations: t} }
	node := nodeFacts{name: "node-1", labels: map[string]string{"os": "linux", "disks": "3", "empty": ""}}
	const keep = ""
	for _, tt := range []struct {
		name string
		pod  corev1.PodSpec
		want string // part of why not
	}{
		{"nothing is asked for", corev1.PodSpec{}, keep},
		{"its name", corev1.PodSpec{NodeName: "node-1"}, keep},
		{"another's name", corev1.PodSpec{NodeName: "node-2"}, "for the node node-2"},
		{"a selector that selects it", corev1.PodSpec{NodeSelector: map[string]string{"os": "linux"}}, keep},
		{"a selector with another value", corev1.PodSpec{NodeSelector: map[string]string{"os": "windows"}}, "os=windows"},
		{"a selector of a label that is not there", corev1.PodSpec{NodeSelector: map[string]string{"none": ""}}, "none="},
		{"a selector of an empty value", corev1.PodSpec{NodeSelector: map[string]string{"empty": ""}}, keep},
		{"no term", require(), "affinity"},
		{"an empty term", require(corev1.NodeSelectorTerm{}), "affinity"},
		{"in", require(where("os", corev1.NodeSelectorOpIn, "windows", "linux")), keep},
		{"not in what it asks for", require(where("os", corev1.NodeSelectorOpIn, "windows")), "affinity"},
		{"not in", require(where("os", corev1.NodeSelectorOpNotIn, "linux")), "affinity"},
		{"not in, of a label that is not there", require(where("none", corev1.NodeSelectorOpNotIn, "linux")), keep},
		{"exists", require(where("none", corev1.NodeSelectorOpExists)), "affinity"},
		{"does not exist", require(where("os", corev1.NodeSelectorOpDoesNotExist)), "affinity"},
		{"more than it has", require(where("disks", corev1.NodeSelectorOpGt, "3")), "affinity"},
		{"more than", require(where("disks", corev1.NodeSelectorOpGt, "2")), keep},
		{"less than it has", require(where("disks", corev1.NodeSelectorOpLt, "3")), "affinity"},
		{"one of two terms", require(where("os", corev1.NodeSelectorOpIn, "windows"), where("os", corev1.NodeSelectorOpExists)), keep},
		{"half of a term", require(corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{
			{Key: "os", Operator: corev1.NodeSelectorOpExists}, {Key: "none", Operator: corev1.NodeSelectorOpExists},
		}}), "affinity"},
		{"by its name", require(named("metadata.name", corev1.NodeSelectorOpIn, "node-1")), keep},
		{"by another's name", require(named("metadata.name", corev1.NodeSelectorOpIn, "node-2")), "affinity"},
		{"by a field of the future", require(named("spec.zone", corev1.NodeSelectorOpIn, "a")), keep},
		{"by an operator of the future", require(where("os", "Like", "win*")), keep},
		{"by values that cannot be read", require(where("disks", corev1.NodeSelectorOpGt, "many")), keep},
		{"only by preference", corev1.PodSpec{Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{{Weight: 1, Preference: where("none", corev1.NodeSelectorOpExists)}},
		}}}, keep},
	} {
		t.Run(tt.name, func(t *testing.T) { expectRefusal(t, node, tt.pod, tt.want) })
	}

	evicting := corev1.Taint{Key: "maintenance", Value: "soon", Effect: corev1.TaintEffectNoExecute}
	for _, tt := range []struct {
		name  string
		taint corev1.Taint
		pod   corev1.PodSpec
		want  string
	}{
		{"not tolerated", evicting, corev1.PodSpec{}, "taint maintenance=soon:NoExecute"},
		{"tolerated by value", evicting, tolerate(corev1.Toleration{Key: "maintenance", Value: "soon"}), keep},
		{"another value is tolerated", evicting, tolerate(corev1.Toleration{Key: "maintenance", Operator: corev1.TolerationOpEqual, Value: "later"}), "taint"},
		{"tolerated by key", evicting, tolerate(corev1.Toleration{Key: "maintenance", Operator: corev1.TolerationOpExists}), keep},
		{"another key is tolerated", evicting, tolerate(corev1.Toleration{Key: "other", Operator: corev1.TolerationOpExists}), "taint"},
		{"another effect is tolerated", evicting, tolerate(corev1.Toleration{Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}), "taint"},
		{"everything is tolerated", evicting, tolerate(corev1.Toleration{Operator: corev1.TolerationOpExists}), keep},
		{"for a while", evicting, tolerate(corev1.Toleration{Key: "maintenance", Value: "soon", TolerationSeconds: new(int64)}), keep},
		{"by a comparison", evicting, tolerate(corev1.Toleration{Key: "maintenance", Operator: "Gt", Value: "1"}), keep},
		{"only new pods are kept away", corev1.Taint{Key: "x", Effect: corev1.TaintEffectNoSchedule}, corev1.PodSpec{}, keep},
		{"the node is not ready", corev1.Taint{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoExecute}, corev1.PodSpec{}, keep},
		{"the node is out of reach", corev1.Taint{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoExecute}, corev1.PodSpec{}, keep},
	} {
		t.Run("a taint: "+tt.name, func(t *testing.T) {
			expectRefusal(t, nodeFacts{name: "node-1", taints: []corev1.Taint{tt.taint}}, tt.pod, tt.want)
		})
	}
}

func expectRefusal(t *testing.T, node nodeFacts, pod corev1.PodSpec, want string) {
	t.Helper()
	if got := node.refuses(&pod); (got == "") != (want == "") || !strings.Contains(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
