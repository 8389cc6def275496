package kubeapi

import (
	"bytes"
	"io"
	"mime"
	"net/http"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// The forms that an object or a list can be asked for in, besides its own.
const (
	partialObject = "PartialObjectMetadata"
	partialList   = "PartialObjectMetadataList"
)

// encoding is how one response is written: in which media type, and whether only metadata.
type encoding struct {
	runtime.SerializerInfo
	as string // "", partialObject or partialList
}

// negotiate picks the first entry of an Accept header that can be served, in the
// order written (no client-go sends weights); false: none can. client-go asks
// for protobuf, then JSON; its metadata client for each with
// as=PartialObjectMetadata;g=meta.k8s.io;v=v1; kubectl for tables, then JSON.
func (s *Server) negotiate(accept, form string) (encoding, bool) {
	if accept == "" {
		accept = runtime.ContentTypeJSON
	}
	for entry := range strings.SplitSeq(accept, ",") {
		mediaType, params, err := mime.ParseMediaType(strings.TrimSpace(entry))
		if err != nil {
			continue
		}
		if mediaType == "*/*" || mediaType == "application/*" {
			mediaType = runtime.ContentTypeJSON
		}
		info, ok := runtime.SerializerInfoForMediaType(s.codecs.SupportedMediaTypes(), mediaType)
		if !ok || info.StreamSerializer == nil { // YAML has no stream
			continue
		}
		as := params["as"]
		if as != "" && (as != form || params["g"] != metav1.GroupName || params["v"] != "v1") {
			continue
		}
		return encoding{SerializerInfo: info, as: as}, true
	}
	return encoding{}, false
}

// object returns a kept object as it is to be written.
func (e encoding) object(res *resource, kept Object) runtime.Object {
	shown := res.shown(kept)
	if e.as == "" {
		return shown
	}
	partial := meta.AsPartialObjectMetadata(shown)
	partial.SetGroupVersionKind(metav1.SchemeGroupVersion.WithKind(partialObject))
	return partial
}

// list returns kept objects as the list that is to be written. The items of a
// full list carry no kind, those of a metadata list do, as from kube-apiserver.
func (e encoding) list(scheme *runtime.Scheme, res *resource, kept []Object, about metav1.ListMeta) (runtime.Object, error) {
	if e.as != "" {
		list := &metav1.PartialObjectMetadataList{ListMeta: about, Items: []metav1.PartialObjectMetadata{}}
		list.SetGroupVersionKind(metav1.SchemeGroupVersion.WithKind(partialList))
		for _, obj := range kept {
			list.Items = append(list.Items, *e.object(res, obj).(*metav1.PartialObjectMetadata))
		}
		return list, nil
	}
	kind := res.GroupVersion().WithKind(res.kind + "List")
	list, err := scheme.New(kind)
	if err != nil {
		return nil, err
	}
	items := make([]runtime.Object, 0, len(kept))
	for _, obj := range kept {
		if res.show != nil {
			obj = res.show(obj.DeepCopyObject().(Object))
		}
		items = append(items, obj)
	}
	if err := meta.SetList(list, items); err != nil {
		return nil, err
	}
	list.GetObjectKind().SetGroupVersionKind(kind)
	listMeta, err := meta.ListAccessor(list)
	if err != nil {
		return nil, err
	}
	listMeta.SetResourceVersion(about.ResourceVersion)
	listMeta.SetContinue(about.Continue)
	listMeta.SetRemainingItemCount(about.RemainingItemCount)
	return list, nil
}

// write answers a request with one object.
func (e encoding) write(w http.ResponseWriter, code int, obj runtime.Object) error {
	var body bytes.Buffer
	if err := e.Serializer.Encode(obj, &body); err != nil {
		return err
	}
	header := w.Header()
	header.Set("Content-Type", e.MediaType)
	header.Set("Cache-Control", "no-cache, private")
	w.WriteHeader(code)
	_, _ = w.Write(body.Bytes()) // a client that left is no error of the server
	return nil
}

// stream is a watch's response. Each frame is a WatchEvent around an object that
// is encoded by itself (k8s.io/apiserver pkg/endpoints/handlers/watch.go).
type stream struct {
	encoding
	frames io.Writer
	flush  func() error
}

func (e encoding) stream(w http.ResponseWriter) (*stream, error) {
	contentType := e.MediaType
	if contentType != runtime.ContentTypeJSON {
		contentType += ";stream=watch"
	}
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Cache-Control", "no-cache, private")
	w.WriteHeader(http.StatusOK)
	st := &stream{encoding: e, frames: e.StreamSerializer.NewFrameWriter(w), flush: http.NewResponseController(w).Flush}
	return st, st.flush()
}

func (st *stream) send(event watch.EventType, obj runtime.Object) error {
	var raw bytes.Buffer
	if err := st.Serializer.Encode(obj, &raw); err != nil {
		return err
	}
	frame := &metav1.WatchEvent{Type: string(event), Object: runtime.RawExtension{Raw: raw.Bytes()}}
	if err := st.StreamSerializer.Encode(frame, st.frames); err != nil {
		return err
	}
	return st.flush()
}
