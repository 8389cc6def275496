package cluster

import (
	"cmp"
	"net/netip"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/util/resourceversion"

	"pod2role/mappings"
)

// knownPod is one pod in the view.
type knownPod struct {
	pod     *mappings.Pod
	version string // the newest that was seen, which may have brought nothing that matters
	read    bool   // known from a direct read alone: the watch has not shown this version yet
}

// podView holds the node's pods. The watch and direct reads both write to it.
type podView struct {
	onPod func(before, after *mappings.Pod)
	keys  []string
	node  string

	// change is held from before the view changes until onPod has returned, so that the calls come one at a time and
	// in order; mu only while the maps are touched, so that nobody who looks a pod up waits for onPod.
	change sync.Mutex
	mu     sync.RWMutex
	pods   map[string]*knownPod           // :: UID -> pod
	addrs  map[netip.Addr][]*mappings.Pod // :: address -> live pods; slices are replaced, never modified
	seen   string                         // up to which version the watch has shown everything; change guards it
}

func newPodView(cfg Config) podView {
	return podView{
		onPod: cfg.OnPod, keys: cfg.AnnotationKeys, node: cfg.Node,
		pods: map[string]*knownPod{}, addrs: map[netip.Addr][]*mappings.Pod{},
	}
}

// newer says that version a is later than b; false as well if they cannot be compared
// (https://kubernetes.io/docs/reference/using-api/api-concepts/#resource-versions).
func newer(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order > 0
}

func (v *podView) byUID(uid string) *mappings.Pod {
	v.mu.RLock()
	defer v.mu.RUnlock()
	if known := v.pods[uid]; known != nil {
		return known.pod
	}
	return nil
}

func (v *podView) at(addr netip.Addr) []*mappings.Pod {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.addrs[addr.Unmap()]
}

func (v *podView) count() int {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return len(v.pods)
}

func (v *podView) all() []*mappings.Pod {
	v.mu.RLock()
	out := make([]*mappings.Pod, 0, len(v.pods))
	for _, known := range v.pods {
		out = append(out, known.pod)
	}
	v.mu.RUnlock()
	slices.SortFunc(out, func(a, b *mappings.Pod) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
	})
	return out
}

// watched takes in what the watch showed of a pod that exists.
func (v *podView) watched(pod *mappings.Pod) {
	v.change.Lock()
	defer v.change.Unlock()
	v.put(pod, false)
	v.progress(pod.ResourceVersion)
}

// deleted takes in that the watch showed the end of a pod, at the given version.
func (v *podView) deleted(uid, version string) {
	v.change.Lock()
	defer v.change.Unlock()
	v.remove(uid)
	v.progress(version)
}

// replaced takes in a list. A pod that is not on it is gone, unless a direct read has found it after the list was made.
func (v *podView) replaced(pods []*mappings.Pod, version string) {
	v.change.Lock()
	defer v.change.Unlock()
	listed := map[string]bool{}
	for _, pod := range pods {
		listed[pod.UID] = true
	}
	for uid, known := range v.pods { // only holders of change write
		if !listed[uid] && (!known.read || !newer(known.version, version)) {
			v.remove(uid)
		}
	}
	for _, pod := range pods {
		v.put(pod, false)
	}
	v.seen = version // not progress: what the watch goes on from counts, even should it be earlier
}

// bookmark takes in that everything up to version has been shown.
func (v *podView) bookmark(version string) {
	v.change.Lock()
	defer v.change.Unlock()
	v.progress(version)
}

func (v *podView) progress(version string) {
	if v.seen == "" || newer(version, v.seen) {
		v.seen = version
	}
}

// found takes in a pod that a direct read returned and returns what is to be believed of it: the pod, a newer version
// that the watch has shown meanwhile, or nil if the read was late and the pod is gone. All pods of this node up to
// version seen have been shown, so that one that is not in the view although it is no later has been deleted. Before
// the first list nothing can be compared, and nothing is kept.
func (v *podView) found(pod *mappings.Pod) *mappings.Pod {
	v.change.Lock()
	defer v.change.Unlock()
	if v.seen == "" {
		return pod
	}
	switch known := v.pods[pod.UID]; {
	case known != nil && newer(pod.ResourceVersion, known.version):
		v.put(pod, true)
	case known == nil && newer(pod.ResourceVersion, v.seen):
		v.put(pod, true)
	}
	return v.byUID(pod.UID)
}

// put adds or replaces a pod; change is held.
func (v *podView) put(pod *mappings.Pod, read bool) {
	known := v.pods[pod.UID]
	if known != nil && known.read && !read && newer(known.version, pod.ResourceVersion) {
		return // a direct read was ahead of the watch
	}
	if known == nil {
		// A name is only one pod's at a time: who had it before is gone, even if the watch has yet to say so.
		for uid, other := range v.pods {
			if other.pod.Namespace == pod.Namespace && other.pod.Name == pod.Name && newer(pod.ResourceVersion, other.version) {
				v.remove(uid)
			}
		}
	}
	var old *mappings.Pod
	if known != nil {
		old = known.pod
	}
	same := old != nil && samePod(old, pod)
	v.mu.Lock()
	if same {
		known.version, known.read = pod.ResourceVersion, read
	} else {
		v.pods[pod.UID] = &knownPod{pod: pod, version: pod.ResourceVersion, read: read}
		v.reindex(old, pod)
	}
	v.mu.Unlock()
	if !same && v.onPod != nil {
		v.onPod(old, pod)
	}
}

// remove forgets a pod; change is held.
func (v *podView) remove(uid string) {
	known := v.pods[uid]
	if known == nil {
		return
	}
	v.mu.Lock()
	delete(v.pods, uid)
	v.reindex(known.pod, nil)
	v.mu.Unlock()
	if v.onPod != nil {
		v.onPod(known.pod, nil)
	}
}

// live returns the addresses under which a pod can be found.
func live(pod *mappings.Pod) []netip.Addr {
	if pod == nil || pod.HostNetwork || pod.Finished {
		return nil
	}
	return pod.Addrs
}

func (v *podView) reindex(old, pod *mappings.Pod) {
	for _, addr := range live(old) {
		var rest []*mappings.Pod
		for _, other := range v.addrs[addr] {
			if other != old {
				rest = append(rest, other)
			}
		}
		if v.addrs[addr] = rest; rest == nil {
			delete(v.addrs, addr)
		}
	}
	for _, addr := range live(pod) {
		v.addrs[addr] = append(v.addrs[addr], pod)
	}
}
