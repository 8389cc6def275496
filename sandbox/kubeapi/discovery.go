package kubeapi

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
)

// isPublic tells which paths system:public-info-viewer opens to everyone.
func isPublic(path string) bool {
	switch path {
	case "/healthz", "/livez", "/readyz", "/version":
		return true
	}
	return false
}

// serveRoot answers what is not a resource: health, version and discovery.
func (s *Server) serveRoot(w http.ResponseWriter, r *http.Request) error {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return apierrors.NewMethodNotSupported(schema.GroupResource{}, strings.ToLower(r.Method))
	}
	path := strings.TrimSuffix(r.URL.Path, "/")
	switch path {
	case "/healthz", "/livez", "/readyz":
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.WriteHeader(http.StatusOK)
		_, _ = w.Write([]byte("ok"))
		return nil
	case "/version":
		return writeJSON(w, s.version())
	case "/api":
		return s.writeDiscovery(w, r, "APIVersions", &metav1.APIVersions{Versions: []string{"v1"}, ServerAddressByClientCIDRs: []metav1.ServerAddressByClientCIDR{}})
	case "/apis":
		list := &metav1.APIGroupList{}
		for _, res := range s.resources {
			known := slices.ContainsFunc(list.Groups, func(g metav1.APIGroup) bool { return g.Name == res.Group })
			if res.Group != "" && !known {
				list.Groups = append(list.Groups, groupOf(res))
			}
		}
		return s.writeDiscovery(w, r, "APIGroupList", list)
	}
	for _, res := range s.resources {
		switch path {
		case "/api/" + res.GroupVersion().String(), "/apis/" + res.GroupVersion().String():
			return s.writeDiscovery(w, r, "APIResourceList", s.resourceList(res.GroupVersion()))
		case "/apis/" + res.Group:
			group := groupOf(res)
			return s.writeDiscovery(w, r, "APIGroup", &group)
		}
	}
	return errNoPath()
}

func groupOf(res *resource) metav1.APIGroup {
	served := metav1.GroupVersionForDiscovery{GroupVersion: res.GroupVersion().String(), Version: res.Version}
	return metav1.APIGroup{Name: res.Group, Versions: []metav1.GroupVersionForDiscovery{served}, PreferredVersion: served}
}

func (s *Server) resourceList(gv schema.GroupVersion) *metav1.APIResourceList {
	list := &metav1.APIResourceList{GroupVersion: gv.String()}
	for _, res := range s.resources {
		if res.GroupVersion() == gv {
			list.APIResources = append(list.APIResources, metav1.APIResource{
				Name: res.Resource, SingularName: res.singular, Namespaced: res.namespaced, Kind: res.kind,
				ShortNames: res.shortNames, Verbs: metav1.Verbs{"create", "get", "list", "patch", "watch"},
			})
		}
	}
	return list
}

func (s *Server) version() version.Info {
	major, minor, _ := strings.Cut(strings.TrimPrefix(s.cfg.Version, "v"), ".")
	minor, _, _ = strings.Cut(minor, ".")
	return version.Info{Major: major, Minor: minor, GitVersion: s.cfg.Version, GitTreeState: "clean", Compiler: "gc"}
}

// writeDiscovery answers unaggregated discovery, which every client falls back to.
func (s *Server) writeDiscovery(w http.ResponseWriter, r *http.Request, kind string, obj runtime.Object) error {
	enc, ok := s.negotiate(r.Header.Get("Accept"), "")
	if !ok {
		return errNotAcceptable()
	}
	obj.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: kind})
	return enc.write(w, http.StatusOK, obj)
}

func writeJSON(w http.ResponseWriter, v any) error {
	body, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", runtime.ContentTypeJSON)
	w.WriteHeader(http.StatusOK)
	_, _ = w.Write(body) // a client that left is no error of the server
	return nil
}
