package kubeapi

import (
	"reflect"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Object is any Kubernetes object that has metadata, such as *corev1.Pod.
type Object interface {
	metav1.Object
	runtime.Object
}

// resource is one collection of the API. Two collections may show the same
// objects in two forms: events are kept once, as events.k8s.io/v1.
type resource struct {
	schema.GroupVersionResource
	kind       string
	singular   string
	shortNames []string
	namespaced bool

	store    string              // the name under which its objects are kept
	stored   reflect.Type        // the form in which they are kept
	show     func(Object) Object // from the kept form to this collection's, nil: the same
	keep     func(Object) Object // and back
	validate func(updated, old Object) field.ErrorList
	fields   func(Object) fields.Set // of the kept form: what field selectors may ask for
}

// newScheme knows the kinds that are served. An error here is a defect of the
// vendored API types, which any test shows; the server then answers 500.
func newScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, appsv1.AddToScheme, eventsv1.AddToScheme, metav1.AddMetaToScheme} {
		_ = add(scheme)
	}
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	return scheme
}

func newResources() []*resource {
	core, apps, events := corev1.SchemeGroupVersion, appsv1.SchemeGroupVersion, eventsv1.SchemeGroupVersion
	return []*resource{
		{
			GroupVersionResource: core.WithResource("pods"), kind: "Pod", singular: "pod", shortNames: []string{"po"}, namespaced: true,
			store: "pods", stored: reflect.TypeFor[*corev1.Pod](), fields: podFields,
		}, {
			GroupVersionResource: core.WithResource("namespaces"), kind: "Namespace", singular: "namespace", shortNames: []string{"ns"},
			store: "namespaces", stored: reflect.TypeFor[*corev1.Namespace](), fields: namespaceFields,
		}, {
			GroupVersionResource: core.WithResource("nodes"), kind: "Node", singular: "node", shortNames: []string{"no"},
			store: "nodes", stored: reflect.TypeFor[*corev1.Node](), fields: nodeFields,
		}, {
			GroupVersionResource: core.WithResource("events"), kind: "Event", singular: "event", shortNames: []string{"ev"}, namespaced: true,
			store: "events", stored: reflect.TypeFor[*eventsv1.Event](), fields: eventFields,
			show: coreEvent, keep: eventFromCore, validate: validateCoreEvent,
		}, {
			GroupVersionResource: apps.WithResource("daemonsets"), kind: "DaemonSet", singular: "daemonset", shortNames: []string{"ds"}, namespaced: true,
			store: "daemonsets", stored: reflect.TypeFor[*appsv1.DaemonSet](), fields: namespacedFields,
		}, {
			GroupVersionResource: events.WithResource("events"), kind: "Event", singular: "event", shortNames: []string{"ev"}, namespaced: true,
			store: "events", stored: reflect.TypeFor[*eventsv1.Event](), fields: eventFields, validate: validateEvent,
		},
	}
}

func (r *resource) gvk() schema.GroupVersionKind { return r.GroupVersion().WithKind(r.kind) }

// empty returns a kept object with nothing in it.
func (r *resource) empty() Object { return reflect.New(r.stored.Elem()).Interface().(Object) }

// shown returns a copy of a kept object in the form of this collection, with its kind set.
func (r *resource) shown(kept Object) Object {
	shown := kept.DeepCopyObject().(Object)
	if r.show != nil {
		shown = r.show(shown)
	}
	shown.GetObjectKind().SetGroupVersionKind(r.gvk())
	return shown
}

// kept is the inverse of shown.
func (r *resource) kept(shown Object) Object {
	shown.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	if r.keep != nil {
		shown = r.keep(shown)
	}
	return shown
}

// resourceOf returns the collection that keeps objects of this type as they are, or nil.
func (s *Server) resourceOf(typ reflect.Type) *resource {
	for _, r := range s.resources {
		if r.stored == typ && r.show == nil {
			return r
		}
	}
	return nil
}

// resourceAt returns the collection of this name, or nil.
func (s *Server) resourceAt(gvr schema.GroupVersionResource) *resource {
	for _, r := range s.resources {
		if r.GroupVersionResource == gvr {
			return r
		}
	}
	return nil
}

func namespacedFields(obj Object) fields.Set {
	return fields.Set{"metadata.name": obj.GetName(), "metadata.namespace": obj.GetNamespace()}
}

// podFields are the fields that kube-apiserver selects pods by
// (pkg/registry/core/pod/strategy.go): of a pod's addresses only the first.
func podFields(obj Object) fields.Set {
	set, pod := namespacedFields(obj), obj.(*corev1.Pod)
	set["spec.nodeName"] = pod.Spec.NodeName
	set["spec.restartPolicy"] = string(pod.Spec.RestartPolicy)
	set["spec.schedulerName"] = pod.Spec.SchedulerName
	set["spec.serviceAccountName"] = pod.Spec.ServiceAccountName
	set["spec.hostNetwork"] = strconv.FormatBool(pod.Spec.HostNetwork)
	set["status.phase"] = string(pod.Status.Phase)
	set["status.podIP"] = ""
	if len(pod.Status.PodIPs) > 0 {
		set["status.podIP"] = pod.Status.PodIPs[0].IP
	}
	set["status.nominatedNodeName"] = pod.Status.NominatedNodeName
	return set
}

func namespaceFields(obj Object) fields.Set {
	namespace := obj.(*corev1.Namespace)
	return fields.Set{"metadata.name": namespace.Name, "name": namespace.Name, "status.phase": string(namespace.Status.Phase)}
}

func nodeFields(obj Object) fields.Set {
	node := obj.(*corev1.Node)
	return fields.Set{"metadata.name": node.Name, "spec.unschedulable": strconv.FormatBool(node.Spec.Unschedulable)}
}

// complete sets what kube-apiserver derives on every write.
func complete(obj Object) {
	switch obj := obj.(type) {
	case *corev1.Pod:
		// podIP and the first of podIPs are one field in two spellings.
		if len(obj.Status.PodIPs) > 0 {
			obj.Status.PodIP = obj.Status.PodIPs[0].IP
		} else if obj.Status.PodIP != "" {
			obj.Status.PodIPs = []corev1.PodIP{{IP: obj.Status.PodIP}}
		}
		if obj.Status.Phase == "" {
			obj.Status.Phase = corev1.PodPending
		}
	case *corev1.Namespace:
		if obj.Labels[corev1.LabelMetadataName] == "" {
			metav1.SetMetaDataLabel(&obj.ObjectMeta, corev1.LabelMetadataName, obj.Name)
		}
		if obj.Status.Phase == "" {
			obj.Status.Phase = corev1.NamespaceActive
		}
	}
}
