package kubeapi_test

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/clientcmd"

	"pod2role/sandbox/kubeapi"
)

func addr(t *testing.T, text string) netip.Addr {
	t.Helper()
	a, err := netip.ParseAddr(text)
	check(t, err)
	return a
}

func TestListSelectsByFieldsAndLabelsTogether(t *testing.T) {
	server, cfg := start(t, kubeapi.Config{})
	for _, pod := range []struct{ name, node, ip string }{{"a", "n1", "10.0.0.1"}, {"b", "n1", "10.0.0.2"}, {"c", "n2", "10.0.0.1"}} {
		check(t, server.StartPod(pod.node, newPod(pod.name)))
		check(t, server.RunPod("shop", pod.name, addr(t, pod.ip), addr(t, "fd00::1")))
	}
	for _, tt := range []struct {
		name   string
		opts   metav1.ListOptions
		want   []string
		reason metav1.StatusReason
	}{
		{name: "all", want: []string{"a", "b", "c"}},
		{name: "by node", opts: metav1.ListOptions{FieldSelector: "spec.nodeName=n1"}, want: []string{"a", "b"}},
		{name: "by node and address", opts: metav1.ListOptions{FieldSelector: "spec.nodeName=n1,status.podIP=10.0.0.1"}, want: []string{"a"}},
		{name: "not by a second address", opts: metav1.ListOptions{FieldSelector: "status.podIP=fd00::1"}},
		{name: "by name", opts: metav1.ListOptions{FieldSelector: "metadata.name!=a,metadata.namespace=shop"}, want: []string{"b", "c"}},
		{name: "by label", opts: metav1.ListOptions{LabelSelector: "app in (b,c)", FieldSelector: "spec.nodeName=n1"}, want: []string{"b"}},
		{name: "at a version long gone by", opts: metav1.ListOptions{ResourceVersion: "1000", ResourceVersionMatch: "Exact"}},
		{name: "at any version", opts: metav1.ListOptions{ResourceVersion: "0", Limit: 1}, want: []string{"a", "b", "c"}},
		{name: "at a version to come", opts: metav1.ListOptions{ResourceVersion: "99999"}, reason: metav1.StatusReasonTimeout},
		{name: "by an unknown field", opts: metav1.ListOptions{FieldSelector: "spec.colour=red"}, reason: metav1.StatusReasonBadRequest},
		{name: "with options that contradict", opts: metav1.ListOptions{ResourceVersionMatch: "Exact"}, reason: metav1.StatusReasonInvalid},
	} {
		t.Run(tt.name, func(t *testing.T) {
			list, err := clientset(t, cfg).CoreV1().Pods("").List(t.Context(), tt.opts)
			if got := apierrors.ReasonForError(err); got != tt.reason {
				t.Fatalf("List() = %v, want reason %q", err, tt.reason)
			}
			var got []string
			for _, pod := range list.Items {
				got = append(got, pod.Name)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("pods (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPagesShowOneVersionUntilItExpires(t *testing.T) {
	server, cfg := start(t, kubeapi.Config{})
	for _, name := range []string{"a", "b", "c"} {
		check(t, server.Apply(newPod(name)))
	}
	pods := clientset(t, cfg).CoreV1().Pods("shop")
	first, err := pods.List(t.Context(), metav1.ListOptions{Limit: 1})
	check(t, err)
	check(t, server.RemovePod("shop", "b"))
	second, err := pods.List(t.Context(), metav1.ListOptions{Limit: 1, Continue: first.Continue})
	check(t, err)
	if second.Items[0].Name != "b" || *second.RemainingItemCount != 1 || second.ResourceVersion != first.ResourceVersion {
		t.Errorf("second page = %s of version %s, %d to come; want b of version %s, 1 to come", second.Items[0].Name, second.ResourceVersion, *second.RemainingItemCount, first.ResourceVersion)
	}
	server.Compact()
	if _, err = pods.List(t.Context(), metav1.ListOptions{Limit: 1, Continue: second.Continue}); !apierrors.IsResourceExpired(err) {
		t.Errorf("List() of an expired page = %v, want 410 Expired", err)
	}
}

func TestWatchTellsInitialEventsChangesBookmarksAndExpiry(t *testing.T) {
	server, cfg := start(t, kubeapi.Config{})
	check(t, server.Apply(newPod("a")))
	pods := clientset(t, cfg).CoreV1().Pods("shop")
	yes := true
	w, err := pods.Watch(t.Context(), metav1.ListOptions{SendInitialEvents: &yes, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan, AllowWatchBookmarks: true})
	check(t, err)
	defer w.Stop()
	if got := <-w.ResultChan(); got.Type != watch.Added || got.Object.(*corev1.Pod).Name != "a" {
		t.Fatalf("first event = %v, want a added", got)
	}
	end := (<-w.ResultChan()).Object.(*corev1.Pod)
	if end.Annotations[metav1.InitialEventsAnnotationKey] != "true" {
		t.Fatalf("after the initial events came %v, want a bookmark that ends them", end)
	}
	check(t, server.Apply(newNamespace("x", "")))
	server.SendBookmarks()
	mark := <-w.ResultChan()
	if mark.Type != watch.Bookmark || mark.Object.(*corev1.Pod).ResourceVersion <= end.ResourceVersion {
		t.Fatalf("got %v, want a bookmark after %s", mark, end.ResourceVersion)
	}
	server.Compact()
	check(t, server.Apply(newPod("b"))) // an open watch goes on
	if got := <-w.ResultChan(); got.Type != watch.Added {
		t.Fatalf("got %v, want b added", got)
	}
	old, err := pods.Watch(t.Context(), metav1.ListOptions{ResourceVersion: end.ResourceVersion})
	check(t, err)
	defer old.Stop()
	got := <-old.ResultChan()
	if got.Type != watch.Error || !apierrors.IsResourceExpired(apierrors.FromObject(got.Object)) {
		t.Errorf("watch of a compacted version tells %v, want the error 410 Expired", got)
	}
}

func TestStaleReadsLeaveWatchesAlone(t *testing.T) {
	server, cfg := start(t, kubeapi.Config{})
	pods := clientset(t, cfg).CoreV1().Pods("shop")
	w, err := pods.Watch(t.Context(), metav1.ListOptions{})
	check(t, err)
	defer w.Stop()
	server.FreezeReads()
	check(t, server.Apply(newPod("a")))
	<-w.ResultChan()
	if _, err = pods.Get(t.Context(), "a", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("Get() = %v, want not found", err)
	}
	server.ThawReads()
	if _, err = pods.Get(t.Context(), "a", metav1.GetOptions{}); err != nil {
		t.Errorf("Get() after the thaw = %v", err)
	}
}

func TestWhoMayDoWhat(t *testing.T) {
	server, cfg := start(t, kubeapi.Config{Token: "good"})
	client := clientset(t, cfg)
	list := func() error {
		_, err := client.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{})
		return err
	}
	check(t, list())
	allow := server.Deny("list", "pods")
	err := list()
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), `cannot list resource "pods" in API group "" at the cluster scope`) {
		t.Errorf("List() when denied = %v, want 403 in kube-apiserver's words", err)
	}
	allow()
	check(t, list())
	server.RevokeToken()
	if err := list(); !apierrors.IsUnauthorized(err) {
		t.Errorf("List() with a revoked token = %v, want 401", err)
	}
	server.SetToken("good")
	check(t, list())
	want := []int{http.StatusOK, http.StatusForbidden, http.StatusOK, http.StatusUnauthorized, http.StatusOK}
	var codes []int
	for _, r := range server.Requests() {
		codes = append(codes, r.Code)
	}
	if !slices.Equal(codes, want) {
		t.Errorf("recorded codes %v, want %v", codes, want)
	}
}

func TestNodePatches(t *testing.T) {
	for _, tt := range []struct {
		name   string
		kind   types.PatchType
		patch  string
		reason metav1.StatusReason
	}{
		{name: "JSON", kind: types.JSONPatchType, patch: `[{"op":"test","path":"/spec/taints/0/key","value":"start"},{"op":"remove","path":"/spec/taints/0"}]`},
		{name: "merge", kind: types.MergePatchType, patch: `{"spec":{"taints":null}}`},
		{name: "strategic", kind: types.StrategicMergePatchType, patch: `{"spec":{"taints":[]}}`},
		{name: "JSON with a test that fails", kind: types.JSONPatchType, patch: `[{"op":"test","path":"/spec/taints/0/key","value":"other"}]`, reason: metav1.StatusReasonInvalid},
		{name: "of an older version", kind: types.MergePatchType, patch: `{"metadata":{"resourceVersion":"1"},"spec":{"taints":null}}`, reason: metav1.StatusReasonConflict},
		{name: "malformed", kind: types.MergePatchType, patch: `{`, reason: metav1.StatusReasonBadRequest},
		{name: "of an unknown kind", kind: "text/plain", patch: `{}`, reason: metav1.StatusReasonUnsupportedMediaType},
	} {
		t.Run(tt.name, func(t *testing.T) {
			server, cfg := start(t, kubeapi.Config{})
			check(t, server.Apply(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: "start", Effect: "NoSchedule"}}}}))
			node, err := clientset(t, cfg).CoreV1().Nodes().Patch(t.Context(), "n1", tt.kind, []byte(tt.patch), metav1.PatchOptions{})
			if got := apierrors.ReasonForError(err); got != tt.reason {
				t.Fatalf("Patch() = %v, want reason %q", err, tt.reason)
			}
			kept, _ := kubeapi.Get[*corev1.Node](server, "", "n1")
			if tainted := len(kept.Spec.Taints) > 0; tainted != (tt.reason != "") {
				t.Errorf("taints = %v", kept.Spec.Taints)
			}
			if err == nil && node.ResourceVersion != kept.ResourceVersion {
				t.Errorf("Patch() returned version %s, kept is %s", node.ResourceVersion, kept.ResourceVersion)
			}
		})
	}
}

func TestDiscoveryAndHealth(t *testing.T) {
	_, cfg := start(t, kubeapi.Config{Token: "t", Version: "v1.33.2"})
	client := clientset(t, cfg).Discovery()
	version, err := client.ServerVersion()
	check(t, err)
	if version.Minor != "33" {
		t.Errorf("minor version %q, want 33", version.Minor)
	}
	_, lists, err := client.ServerGroupsAndResources()
	check(t, err)
	var got []string
	for _, list := range lists {
		for _, r := range list.APIResources {
			got = append(got, list.GroupVersion+"/"+r.Name)
		}
	}
	slices.Sort(got)
	want := []string{"apps/v1/daemonsets", "events.k8s.io/v1/events", "v1/events", "v1/namespaces", "v1/nodes", "v1/pods"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("resources (-want +got):\n%s", diff)
	}
	_, err = client.RESTClient().Get().AbsPath("/readyz").DoRaw(t.Context())
	check(t, err)
	if _, err = client.RESTClient().Get().AbsPath("/api/v1/configmaps").DoRaw(t.Context()); !apierrors.IsNotFound(err) {
		t.Errorf("an unknown resource answers %v, want 404", err)
	}
}

func TestKubeconfigCarriesTheTokenOverHTTPS(t *testing.T) {
	certificate, ca, err := kubeapi.SelfSigned()
	check(t, err)
	server, plain := start(t, kubeapi.Config{Token: "t", Certificate: &certificate})
	file, err := kubeapi.Kubeconfig(strings.Replace(plain.Host, "http:", "https:", 1), "t", ca)
	check(t, err)
	cfg, err := clientcmd.RESTConfigFromKubeConfig(file)
	check(t, err)
	pods := podsOf(t, cfg, "n1")
	server.SetOutage(kubeapi.Refuse)
	check(t, server.StartPod("n1", newPod("a")))
	server.SetOutage(kubeapi.Up)
	pods.await("+a ")
}
