package kubeapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

// maxBody is what kube-apiserver takes of a request body.
const maxBody = 3 << 20

// create answers a POST of a new object.
func (s *Server) create(w http.ResponseWriter, r *http.Request, enc encoding, to route) error {
	body, err := readBody(r)
	if err != nil {
		return err
	}
	obj, err := s.decode(to.res, body)
	if err != nil {
		return err
	}
	if to.res.namespaced {
		if ns := obj.GetNamespace(); ns != "" && ns != to.name.Namespace {
			return apierrors.NewBadRequest(fmt.Sprintf("the namespace of the provided object does not match the namespace sent on the request (%s != %s)", ns, to.name.Namespace))
		}
		obj.SetNamespace(to.name.Namespace)
	}
	if obj.GetResourceVersion() != "" {
		return apierrors.NewBadRequest("resourceVersion should not be set on objects to be created")
	}
	if obj.GetName() == "" && obj.GetGenerateName() != "" {
		obj.SetName(obj.GetGenerateName() + rand.String(5))
	}
	if obj.GetName() == "" || to.name.Name != "" {
		return apierrors.NewBadRequest("name or generateName is required")
	}
	obj.SetUID("") // the server's to give
	if err := validated(to.res, obj, nil); err != nil {
		return err
	}
	s.mu.Lock()
	exists := s.store.objects[to.res.store][nameOf(obj)] != nil
	if !exists {
		s.put(to.res, obj)
	}
	s.mu.Unlock()
	if exists {
		return apierrors.NewAlreadyExists(to.res.GroupResource(), obj.GetName())
	}
	return enc.write(w, http.StatusCreated, enc.object(to.res, obj))
}

// patch answers a PATCH of an object: JSON patch, merge patch or strategic merge
// patch. A patch that names an older resourceVersion is a conflict; one that
// changes nothing writes nothing.
func (s *Server) patch(w http.ResponseWriter, r *http.Request, enc encoding, to route) error {
	body, err := readBody(r)
	if err != nil {
		return err
	}
	contentType, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil {
		return errMediaType(contentType)
	}
	s.mu.Lock()
	obj, err := s.patched(to, types.PatchType(contentType), body)
	s.mu.Unlock()
	if err != nil {
		return err
	}
	return enc.write(w, http.StatusOK, enc.object(to.res, obj))
}

// patched applies a patch and returns the object as it then is; s.mu is held.
func (s *Server) patched(to route, kind types.PatchType, patch []byte) (Object, error) {
	old, err := s.store.now().get(to.res, to.name)
	if err != nil {
		return nil, err
	}
	shown := to.res.shown(old)
	before, err := json.Marshal(shown)
	if err != nil {
		return nil, err
	}
	after, err := applyPatch(kind, before, patch, shown)
	if err != nil {
		return nil, err
	}
	obj, err := s.decode(to.res, after)
	if err != nil {
		return nil, err
	}
	if obj.GetResourceVersion() != old.GetResourceVersion() {
		return nil, apierrors.NewConflict(to.res.GroupResource(), to.name.Name,
			errors.New("the object has been modified; please apply your changes to the latest version and try again"))
	}
	if nameOf(obj) != nameOf(old) || obj.GetUID() != old.GetUID() {
		return nil, apierrors.NewBadRequest("the name, namespace and uid of an object cannot be changed")
	}
	if err := validated(to.res, obj, old); err != nil {
		return nil, err
	}
	if equality.Semantic.DeepEqual(obj, old) {
		return old, nil
	}
	s.put(to.res, obj)
	return obj, nil
}

func applyPatch(kind types.PatchType, before, patch []byte, like any) ([]byte, error) {
	var after []byte
	var err error
	switch kind {
	case types.StrategicMergePatchType:
		after, err = strategicpatch.StrategicMergePatch(before, patch, like)
	case types.MergePatchType:
		after, err = jsonpatch.MergePatch(before, patch)
	case types.JSONPatchType:
		var ops jsonpatch.Patch
		if ops, err = jsonpatch.DecodePatch(patch); err != nil {
			break
		}
		if after, err = ops.Apply(before); err != nil {
			// A failed test or a path that is not there: the patch is well formed.
			return nil, apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "patch", schema.GroupResource{}, "", err.Error(), 0, false)
		}
	case types.ApplyYAMLPatchType, types.ApplyCBORPatchType:
		return nil, errMediaType(string(kind))
	default:
		return nil, errMediaType(string(kind))
	}
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	return after, nil
}

// decode reads an object of a collection into the form it is kept in.
func (s *Server) decode(res *resource, body []byte) (Object, error) {
	decoded, kind, err := s.codecs.UniversalDeserializer().Decode(body, nil, nil)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	obj, ok := decoded.(Object)
	if !ok || *kind != res.gvk() {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("%s in the request is not a %s", kind, res.gvk()))
	}
	return res.kept(obj), nil
}

func validated(res *resource, obj, old Object) error {
	if res.validate == nil {
		return nil
	}
	if errs := res.validate(obj, old); len(errs) > 0 {
		return apierrors.NewInvalid(res.gvk().GroupKind(), obj.GetName(), errs)
	}
	return nil
}

func readBody(r *http.Request) ([]byte, error) {
	var body bytes.Buffer
	if _, err := io.Copy(&body, io.LimitReader(r.Body, maxBody+1)); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if body.Len() > maxBody {
		return nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("limit is %d", maxBody))
	}
	return body.Bytes(), nil
}

func errMediaType(given string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusUnsupportedMediaType, Reason: metav1.StatusReasonUnsupportedMediaType,
		Message: fmt.Sprintf("the body of the request was in an unknown format - accepted media types include: %s, %s, %s (got %q)",
			types.JSONPatchType, types.MergePatchType, types.StrategicMergePatchType, given),
	}}
}
