package kubeapi

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
)

// maxHistory bounds the changes that are remembered. kube-apiserver has etcd
// forget what is older than five minutes; here the oldest half goes.
const maxHistory = 10_000

// change is one write. Neither object is modified after it.
type change struct {
	version       uint64
	store         string
	name          types.NamespacedName
	before, after Object // before nil: created; after nil: deleted
}

// collections are all objects at one version.
// :: store -> name -> object
type collections map[string]map[types.NamespacedName]Object

// store keeps objects and their history as etcd does: one counter for all of
// them, each write a version. Server.mu guards it.
type store struct {
	version   uint64 // of the last write
	compacted uint64 // versions before this one can no longer be looked at
	objects   collections
	history   []change // after compacted, ascending
}

func newStore() store {
	// Not 1: versions of one digit would hide comparisons by text.
	return store{version: 1000, compacted: 1000, objects: collections{}}
}

func nameOf(obj Object) types.NamespacedName {
	return types.NamespacedName{Namespace: obj.GetNamespace(), Name: obj.GetName()}
}

// put writes an object that nobody else holds and returns what happened.
func (st *store) put(res *resource, obj Object, now time.Time) change {
	name := nameOf(obj)
	old := st.objects[res.store][name]
	if old != nil {
		obj.SetUID(cmp.Or(obj.GetUID(), old.GetUID()))
		obj.SetCreationTimestamp(old.GetCreationTimestamp())
	}
	obj.SetUID(cmp.Or(obj.GetUID(), uuid.NewUUID()))
	if stamp := obj.GetCreationTimestamp(); stamp.IsZero() {
		stamp.Time = now
		obj.SetCreationTimestamp(stamp)
	}
	complete(obj)
	return st.record(change{store: res.store, name: name, before: old, after: obj})
}

// remove deletes an object; false: there is none.
func (st *store) remove(res *resource, name types.NamespacedName) (change, bool) {
	old := st.objects[res.store][name]
	if old == nil {
		return change{}, false
	}
	return st.record(change{store: res.store, name: name, before: old}), true
}

func (st *store) record(c change) change {
	st.version++
	c.version = st.version
	if c.after != nil {
		c.after.SetResourceVersion(strconv.FormatUint(c.version, 10))
	}
	apply(st.objects, c.store, c.name, c.after)
	st.history = append(st.history, c)
	if len(st.history) > maxHistory {
		st.compact(st.history[maxHistory/2].version)
	}
	return c
}

func apply(objects collections, store string, name types.NamespacedName, obj Object) {
	if obj == nil {
		delete(objects[store], name)
		return
	}
	if objects[store] == nil {
		objects[store] = map[types.NamespacedName]Object{}
	}
	objects[store][name] = obj
}

// compact forgets what was before a version.
func (st *store) compact(version uint64) {
	st.compacted = version
	st.history = slices.DeleteFunc(st.history, func(c change) bool { return c.version <= version })
}

// since returns the changes after a version, or false when they are forgotten.
func (st *store) since(version uint64) ([]change, bool) {
	if version < st.compacted {
		return nil, false
	}
	i, _ := slices.BinarySearchFunc(st.history, version+1, func(c change, v uint64) int { return cmp.Compare(c.version, v) })
	return st.history[i:], true
}

// snapshot is what a read sees: all objects as they were at a version.
type snapshot struct {
	version uint64
	objects collections
}

func (st *store) now() snapshot { return snapshot{version: st.version, objects: st.objects} }

// at returns what a version looked like, or false when that is forgotten.
func (st *store) at(version uint64) (snapshot, bool) {
	later, ok := st.since(version)
	if !ok {
		return snapshot{}, false
	}
	past := collections{}
	for name, objects := range st.objects {
		past[name] = maps.Clone(objects)
	}
	for _, c := range slices.Backward(later) {
		apply(past, c.store, c.name, c.before)
	}
	return snapshot{version: version, objects: past}, true
}

// list returns what matches, in etcd's order: by namespace, then name.
func (sn snapshot) list(res *resource, match func(Object) bool) []Object {
	var found []Object
	for _, obj := range sn.objects[res.store] {
		if match(obj) {
			found = append(found, obj)
		}
	}
	slices.SortFunc(found, func(a, b Object) int { return compareNames(nameOf(a), nameOf(b)) })
	return found
}

func compareNames(a, b types.NamespacedName) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

func (sn snapshot) get(res *resource, name types.NamespacedName) (Object, error) {
	if obj := sn.objects[res.store][name]; obj != nil {
		return obj, nil
	}
	return nil, apierrors.NewNotFound(res.GroupResource(), name.Name)
}
