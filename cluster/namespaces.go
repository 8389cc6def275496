package cluster

import (
	"sync"

	"pod2role/mappings"
)

// namespaceView holds the namespaces. Only the watch writes to it, so that one mutex will do.
type namespaceView struct {
	onNamespace func(before, after *mappings.Namespace)
	keys        []string

	mu         sync.RWMutex
	namespaces map[string]*mappings.Namespace // :: name -> namespace
}

func newNamespaceView(cfg Config) namespaceView {
	return namespaceView{onNamespace: cfg.OnNamespace, keys: cfg.AnnotationKeys, namespaces: map[string]*mappings.Namespace{}}
}

func (v *namespaceView) byName(name string) *mappings.Namespace {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.namespaces[name]
}

func (v *namespaceView) count() int {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return len(v.namespaces)
}

// put adds or replaces a namespace, or forgets it if ns is nil.
func (v *namespaceView) put(name string, ns *mappings.Namespace) {
	old := v.namespaces[name]
	if old == nil && ns == nil || old != nil && ns != nil && sameNamespace(old, ns) {
		return
	}
	v.mu.Lock()
	if ns == nil {
		delete(v.namespaces, name)
	} else {
		v.namespaces[name] = ns
	}
	v.mu.Unlock()
	if v.onNamespace != nil {
		v.onNamespace(old, ns)
	}
}

// replaced takes in a list.
func (v *namespaceView) replaced(list []*mappings.Namespace) {
	listed := map[string]bool{}
	for _, ns := range list {
		listed[ns.Name] = true
	}
	for name := range v.namespaces {
		if !listed[name] {
			v.put(name, nil)
		}
	}
	for _, ns := range list {
		v.put(ns.Name, ns)
	}
}
