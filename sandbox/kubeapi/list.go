package kubeapi

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	internalscheme "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	optionsvalidation "k8s.io/apimachinery/pkg/apis/meta/internalversion/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// get answers a read of one object. As in kube-apiserver, resourceVersion asks
// for "not older than", which the present always is.
func (s *Server) get(w http.ResponseWriter, enc encoding, to route) error {
	s.mu.Lock()
	obj, err := s.reads().get(to.res, to.name)
	s.mu.Unlock()
	if err != nil {
		return err
	}
	return enc.write(w, http.StatusOK, enc.object(to.res, obj))
}

// reads is what gets and lists see; s.mu is held.
func (s *Server) reads() snapshot {
	if s.faults.pinned != nil {
		return *s.faults.pinned
	}
	return s.store.now()
}

// list answers a read of a collection.
func (s *Server) list(w http.ResponseWriter, r *http.Request, enc encoding, to route) error {
	opts, err := s.options(r)
	if err != nil {
		return err
	}
	match, err := matcher(to, opts)
	if err != nil {
		return err
	}
	s.mu.Lock()
	from, start, err := s.listed(opts)
	var found []Object
	if err == nil {
		found = from.list(to.res, match)
	}
	s.mu.Unlock()
	if err != nil {
		return err
	}
	found, about := page(found, from.version, start, opts)
	list, err := enc.list(s.scheme, to.res, found, about)
	if err != nil {
		return err
	}
	return enc.write(w, http.StatusOK, list)
}

// options reads the query of a list or watch and holds it to kube-apiserver's rules.
func (s *Server) options(r *http.Request) (*internalversion.ListOptions, error) {
	opts := &internalversion.ListOptions{}
	if err := internalscheme.ParameterCodec.DecodeParameters(r.URL.Query(), metav1.SchemeGroupVersion, opts); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if errs := optionsvalidation.ValidateListOptions(opts, !s.cfg.NoWatchList); len(errs) > 0 {
		return nil, apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: "ListOptions"}, "", errs)
	}
	return opts, nil
}

// matcher is what a list or watch selects: namespace, labels and fields together.
func matcher(to route, opts *internalversion.ListOptions) (func(Object) bool, error) {
	if opts.FieldSelector != nil {
		known := to.res.fields(to.res.empty())
		for _, term := range opts.FieldSelector.Requirements() {
			if !known.Has(term.Field) {
				return nil, apierrors.NewBadRequest(fmt.Sprintf("field label not supported: %s", term.Field))
			}
		}
	}
	return func(obj Object) bool {
		if to.name.Namespace != "" && obj.GetNamespace() != to.name.Namespace {
			return false
		}
		if to.name.Name != "" && obj.GetName() != to.name.Name { // GET …/NAME?watch=true
			return false
		}
		if opts.LabelSelector != nil && !opts.LabelSelector.Matches(labels.Set(obj.GetLabels())) {
			return false
		}
		return opts.FieldSelector == nil || opts.FieldSelector.Empty() || opts.FieldSelector.Matches(to.res.fields(obj))
	}, nil
}

// listed is the state that a list asks for
// (https://kubernetes.io/docs/reference/using-api/api-concepts/#semantics-for-get-and-list),
// and after which name it goes on; s.mu is held.
func (s *Server) listed(opts *internalversion.ListOptions) (snapshot, types.NamespacedName, error) {
	var start types.NamespacedName
	reads := s.reads()
	if opts.Continue != "" {
		token, err := parseContinue(opts.Continue)
		if err != nil {
			return reads, start, err
		}
		past, ok := s.store.at(token.Version)
		if !ok {
			return reads, start, apierrors.NewResourceExpired("The provided continue parameter is too old to display a consistent list result. " +
				"You can start a new list without the continue parameter.")
		}
		return past, token.Start, nil
	}
	version, err := parseVersion(opts.ResourceVersion)
	if err != nil || version == 0 {
		return reads, start, err
	}
	if version > reads.version {
		return reads, start, errTooLarge(version, reads.version)
	}
	// Without a match but with a limit, a version means that very version.
	exact := opts.ResourceVersionMatch == metav1.ResourceVersionMatchExact || opts.ResourceVersionMatch == "" && opts.Limit > 0
	if !exact {
		return reads, start, nil
	}
	past, ok := s.store.at(version)
	if !ok {
		return reads, start, apierrors.NewResourceExpired("The resourceVersion for the provided list is too old.")
	}
	return past, start, nil
}

// continueToken is opaque to clients; these are kube-apiserver's fields.
type continueToken struct {
	Meta    string               `json:"v"`
	Version uint64               `json:"rv"`
	Start   types.NamespacedName `json:"start"` // after which the next page begins
}

func parseContinue(text string) (continueToken, error) {
	var token continueToken
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if err == nil {
		err = json.Unmarshal(raw, &token)
	}
	if err != nil {
		return token, apierrors.NewBadRequest("continue key is not valid: " + err.Error())
	}
	return token, nil
}

// page cuts a list to its limit. As in kube-apiserver's watch cache, a list from
// version "0" has no pages.
func page(found []Object, version uint64, start types.NamespacedName, opts *internalversion.ListOptions) ([]Object, metav1.ListMeta) {
	about := metav1.ListMeta{ResourceVersion: strconv.FormatUint(version, 10)}
	for start.Name != "" && len(found) > 0 && compareNames(nameOf(found[0]), start) <= 0 {
		found = found[1:]
	}
	rest := int64(len(found)) - opts.Limit
	if opts.Limit <= 0 || rest <= 0 || opts.ResourceVersion == "0" {
		return found, about
	}
	found = found[:opts.Limit]
	token, err := json.Marshal(continueToken{Meta: "meta.k8s.io/v1", Version: version, Start: nameOf(found[opts.Limit-1])})
	if err != nil { // cannot be: three plain fields
		return found, about
	}
	about.Continue = base64.RawURLEncoding.EncodeToString(token)
	if (opts.FieldSelector == nil || opts.FieldSelector.Empty()) && (opts.LabelSelector == nil || opts.LabelSelector.Empty()) {
		about.RemainingItemCount = &rest
	}
	return found, about
}

func parseVersion(text string) (uint64, error) {
	if text == "" {
		return 0, nil
	}
	version, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, apierrors.NewBadRequest(fmt.Sprintf("Invalid value: %q: resourceVersion: %v", text, err))
	}
	return version, nil
}

// errTooLarge is the answer to a version that is yet to come. kube-apiserver
// waits three seconds for it first.
func errTooLarge(version, current uint64) error {
	err := apierrors.NewTimeoutError(fmt.Sprintf("Too large resource version: %d, current: %d", version, current), 1)
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: metav1.CauseTypeResourceVersionTooLarge, Message: "Too large resource version"}}
	return err
}
