package kubeapi

import (
	"fmt"
	"reflect"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
)

// Apply creates each object, or replaces the one of that name. As the server
// would, it assigns UID (unless one is given), resourceVersion and
// creationTimestamp, and sets them in obj as well; a name that exists keeps its
// UID, unless obj brings another: then the old one is deleted first. Objects are
// *corev1.Pod, *corev1.Namespace, *corev1.Node, *appsv1.DaemonSet and
// *eventsv1.Event; the caller keeps obj, the server has a copy.
func (s *Server) Apply(objs ...Object) error {
	for _, obj := range objs {
		res := s.resourceOf(reflect.TypeOf(obj))
		if res == nil {
			return fmt.Errorf("applying %T: the server has no such resource", obj)
		}
		kept := res.kept(obj.DeepCopyObject().(Object))
		s.mu.Lock()
		if old := s.store.objects[res.store][nameOf(kept)]; old != nil && kept.GetUID() != "" && kept.GetUID() != old.GetUID() {
			s.remove(res, nameOf(kept))
		}
		s.put(res, kept)
		obj.SetUID(kept.GetUID())
		obj.SetResourceVersion(kept.GetResourceVersion())
		obj.SetCreationTimestamp(kept.GetCreationTimestamp())
		s.mu.Unlock()
	}
	return nil
}

// Delete removes each object by its namespace and name, at once and without
// grace. What does not exist is a NotFound error.
func (s *Server) Delete(objs ...Object) error {
	for _, obj := range objs {
		res := s.resourceOf(reflect.TypeOf(obj))
		if res == nil {
			return fmt.Errorf("deleting %T: the server has no such resource", obj)
		}
		s.mu.Lock()
		ok := s.remove(res, nameOf(obj))
		s.mu.Unlock()
		if !ok {
			return apierrors.NewNotFound(res.GroupResource(), obj.GetName())
		}
	}
	return nil
}

// Update changes the object of type T at namespace and name in one step; change
// gets a copy. The namespace is "" for namespaces and nodes. What does not exist
// is a NotFound error.
func Update[T Object](s *Server, namespace, name string, change func(T)) error {
	res := s.resourceOf(reflect.TypeFor[T]())
	if res == nil {
		return fmt.Errorf("updating %s: the server has no such resource", reflect.TypeFor[T]())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	obj, err := s.store.now().get(res, types.NamespacedName{Namespace: namespace, Name: name})
	if err != nil {
		return err
	}
	updated := obj.DeepCopyObject().(T)
	change(updated)
	s.put(res, updated)
	return nil
}

// Get returns a copy of the object of type T at namespace and name as it is now,
// whatever reads over the wire are made to see; false: there is none.
func Get[T Object](s *Server, namespace, name string) (T, bool) {
	var none T
	res := s.resourceOf(reflect.TypeFor[T]())
	if res == nil {
		return none, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	obj, err := s.store.now().get(res, types.NamespacedName{Namespace: namespace, Name: name})
	if err != nil {
		return none, false
	}
	return obj.DeepCopyObject().(T), true
}
