package kubeapi

import (
	"errors"
	"net/http"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// route is what a request is about, as kube-apiserver's RequestInfo.
type route struct {
	verb     string // "get", "list", "watch", "create", "update", "patch", "delete"
	gvr      schema.GroupVersionResource
	res      *resource // nil: not a resource, or one that is not served
	name     types.NamespacedName
	sub      string // subresource
	resource bool   // the path is a resource's, served or not
}

// route reads /api/v1/… and /apis/GROUP/VERSION/…, each followed by
// [namespaces/NAMESPACE/]RESOURCE[/NAME[/SUBRESOURCE]].
func (s *Server) route(r *http.Request) route {
	to := route{verb: strings.ToLower(r.Method)}
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	switch {
	case parts[0] == "api" && len(parts) > 2:
		to.gvr.Version, parts = parts[1], parts[2:]
	case parts[0] == "apis" && len(parts) > 3:
		to.gvr.Group, to.gvr.Version, parts = parts[1], parts[2], parts[3:]
	default:
		return to
	}
	to.resource = true
	if parts[0] == "namespaces" && len(parts) > 2 && parts[2] != "status" && parts[2] != "finalize" {
		to.name.Namespace, parts = parts[1], parts[2:]
	}
	to.gvr.Resource = parts[0]
	if len(parts) > 1 {
		to.name.Name = parts[1]
	}
	if len(parts) > 2 {
		to.sub = strings.Join(parts[2:], "/")
	}
	to.res = s.resourceAt(to.gvr)
	switch r.Method {
	case http.MethodPost:
		to.verb = "create"
	case http.MethodPut:
		to.verb = "update"
	case http.MethodGet, http.MethodHead:
		to.verb = "get"
		if to.name.Name == "" {
			to.verb = "list"
		}
		if watch := r.URL.Query().Get("watch"); watch == "true" || watch == "1" {
			to.verb = "watch"
		}
	}
	return to
}

// dispatch answers a request that was let in.
func (s *Server) dispatch(w http.ResponseWriter, r *http.Request, to route) error {
	switch {
	case !to.resource:
		return s.serveRoot(w, r)
	case to.res == nil || to.sub != "" || (to.name.Namespace != "" && !to.res.namespaced):
		return errNoPath()
	}
	form := partialObject
	if to.verb == "list" {
		form = partialList
	}
	enc, ok := s.negotiate(r.Header.Get("Accept"), form)
	if !ok {
		return errNotAcceptable()
	}
	switch to.verb {
	case "get":
		return s.get(w, enc, to)
	case "list":
		return s.list(w, r, enc, to)
	case "watch":
		return s.watch(w, r, enc, to)
	case "create":
		return s.create(w, r, enc, to)
	case "patch":
		return s.patch(w, r, enc, to)
	default:
		return apierrors.NewMethodNotSupported(to.gvr.GroupResource(), to.verb)
	}
}

func errNoPath() error {
	return apierrors.NewGenericServerResponse(http.StatusNotFound, "", schema.GroupResource{}, "", "", 0, true)
}

func errNotAcceptable() error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusNotAcceptable, Reason: metav1.StatusReasonNotAcceptable,
		Message: "only the following media types are accepted: application/json, application/vnd.kubernetes.protobuf",
	}}
}

// statusOf returns an error as the Status that is sent for it.
func statusOf(err error) *metav1.Status {
	status := apierrors.NewInternalError(err).Status()
	var known apierrors.APIStatus
	if errors.As(err, &known) {
		status = known.Status()
	}
	status.SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: "Status"})
	return &status
}

// writeError answers with a Status, in the media type that was asked for.
func (s *Server) writeError(w http.ResponseWriter, r *http.Request, err error) {
	accept := slices.DeleteFunc(strings.Split(r.Header.Get("Accept"), ","), func(entry string) bool { return strings.Contains(entry, "as=Table") })
	for i := range accept {
		accept[i], _, _ = strings.Cut(accept[i], ";") // a Status has no other form
	}
	enc, ok := s.negotiate(strings.Join(accept, ","), "")
	if !ok {
		enc, _ = s.negotiate(runtime.ContentTypeJSON, "")
	}
	status := statusOf(err)
	_ = enc.write(w, int(status.Code), status) // encoding a Status cannot fail
}
