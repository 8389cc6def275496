package cluster

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"pod2role/mappings"
)

// podStore and namespaceStore are what client-go's reflectors write to. They take the place of an informer and its
// store: objects are converted as they come and never kept, and what a list no longer has is known at once, so that
// there are no tombstones to tell from objects.

type podStore struct {
	view *podView
	feed *feed
}

var (
	_ cache.ReflectorStore         = podStore{}
	_ cache.ReflectorBookmarkStore = podStore{}
	_ cache.ReflectorStore         = namespaceStore{}
	_ cache.ReflectorBookmarkStore = namespaceStore{}
)

// Add implements cache.ReflectorStore.
func (s podStore) Add(obj any) error { return s.Update(obj) }

// Update implements cache.ReflectorStore.
func (s podStore) Update(obj any) error {
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return fmt.Errorf("watching pods: got a %T", obj)
	}
	s.feed.progressed(pod.ResourceVersion)
	if pod.Spec.NodeName != s.view.node { // whoever answers does not know the field selector
		return nil
	}
	s.view.watched(convertPod(pod, s.view.keys))
	return nil
}

// Delete implements cache.ReflectorStore.
func (s podStore) Delete(obj any) error {
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return fmt.Errorf("watching pods: got a deleted %T", obj)
	}
	s.feed.progressed(pod.ResourceVersion)
	s.view.deleted(string(pod.UID), pod.ResourceVersion)
	return nil
}

// Replace implements cache.ReflectorStore.
func (s podStore) Replace(list []any, version string) error {
	pods := make([]*mappings.Pod, 0, len(list))
	for _, obj := range list {
		pod, ok := obj.(*corev1.Pod)
		if !ok {
			return fmt.Errorf("listing pods: got a %T", obj)
		}
		if pod.Spec.NodeName == s.view.node {
			pods = append(pods, convertPod(pod, s.view.keys))
		}
	}
	s.view.replaced(pods, version)
	s.feed.listed(version)
	return nil
}

// Bookmark implements cache.ReflectorBookmarkStore.
func (s podStore) Bookmark(version string) error {
	s.feed.progressed(version)
	s.view.bookmark(version)
	return nil
}

// Resync implements cache.ReflectorStore.
func (podStore) Resync() error { return nil }

type namespaceStore struct {
	view *namespaceView
	feed *feed
}

// Add implements cache.ReflectorStore.
func (s namespaceStore) Add(obj any) error { return s.Update(obj) }

// Update implements cache.ReflectorStore.
func (s namespaceStore) Update(obj any) error {
	ns, ok := obj.(*metav1.PartialObjectMetadata)
	if !ok {
		return fmt.Errorf("watching namespaces: got a %T", obj)
	}
	s.feed.progressed(ns.ResourceVersion)
	s.view.put(ns.Name, convertNamespace(ns, s.view.keys))
	return nil
}

// Delete implements cache.ReflectorStore.
func (s namespaceStore) Delete(obj any) error {
	ns, ok := obj.(*metav1.PartialObjectMetadata)
	if !ok {
		return fmt.Errorf("watching namespaces: got a deleted %T", obj)
	}
	s.feed.progressed(ns.ResourceVersion)
	s.view.put(ns.Name, nil)
	return nil
}

// Replace implements cache.ReflectorStore.
func (s namespaceStore) Replace(list []any, version string) error {
	namespaces := make([]*mappings.Namespace, 0, len(list))
	for _, obj := range list {
		ns, ok := obj.(*metav1.PartialObjectMetadata)
		if !ok {
			return fmt.Errorf("listing namespaces: got a %T", obj)
		}
		namespaces = append(namespaces, convertNamespace(ns, s.view.keys))
	}
	s.view.replaced(namespaces)
	s.feed.listed(version)
	return nil
}

// Bookmark implements cache.ReflectorBookmarkStore.
func (s namespaceStore) Bookmark(version string) error {
	s.feed.progressed(version)
	return nil
}

// Resync implements cache.ReflectorStore.
func (namespaceStore) Resync() error { return nil }
