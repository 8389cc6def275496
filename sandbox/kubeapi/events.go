package kubeapi

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Limits of an event's texts, in bytes (kubernetes pkg/apis/core/validation/events.go).
const (
	maxEventName = 128 // reason, action and reportingInstance
	maxEventNote = 1024
)

// Events returns the events that exist, whichever of the two APIs they came
// through, in the order of their creation.
func (s *Server) Events() []*eventsv1.Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.events()
}

func (s *Server) events() []*eventsv1.Event {
	var found []*eventsv1.Event
	for _, name := range s.eventOrder {
		if obj := s.store.objects["events"][name]; obj != nil {
			found = append(found, obj.DeepCopyObject().(*eventsv1.Event))
		}
	}
	return found
}

// WaitForEvents waits until at least n events exist that match (nil: any), and
// returns those. An event that is repeated is one event with a Series.
func (s *Server) WaitForEvents(ctx context.Context, n int, match func(*eventsv1.Event) bool) ([]*eventsv1.Event, error) {
	var found []*eventsv1.Event
	err := s.wait(ctx, func() bool {
		found = nil
		for _, event := range s.events() {
			if match == nil || match(event) {
				found = append(found, event)
			}
		}
		return len(found) >= n
	})
	if err != nil {
		return found, fmt.Errorf("waiting for %d events, have %d: %w", n, len(found), err)
	}
	return found, nil
}

// noteEvent keeps the order in which events came; s.mu is held.
func (s *Server) noteEvent(c change) {
	switch {
	case c.before == nil:
		s.eventOrder = append(s.eventOrder, c.name)
	case c.after == nil:
		s.eventOrder = slices.DeleteFunc(s.eventOrder, func(name types.NamespacedName) bool { return name == c.name })
	}
}

// coreEvent and eventFromCore convert as kubernetes pkg/apis/{core,events}/v1
// do: the same fields under other names.
func coreEvent(obj Object) Object {
	e := obj.(*eventsv1.Event)
	out := &corev1.Event{
		ObjectMeta: e.ObjectMeta, InvolvedObject: e.Regarding, Reason: e.Reason, Message: e.Note, Source: e.DeprecatedSource,
		FirstTimestamp: e.DeprecatedFirstTimestamp, LastTimestamp: e.DeprecatedLastTimestamp, Count: e.DeprecatedCount,
		Type: e.Type, EventTime: e.EventTime, Action: e.Action, Related: e.Related,
		ReportingController: e.ReportingController, ReportingInstance: e.ReportingInstance,
	}
	if e.Series != nil {
		out.Series = &corev1.EventSeries{Count: e.Series.Count, LastObservedTime: e.Series.LastObservedTime}
	}
	return out
}

func eventFromCore(obj Object) Object {
	e := obj.(*corev1.Event)
	out := &eventsv1.Event{
		ObjectMeta: e.ObjectMeta, Regarding: e.InvolvedObject, Reason: e.Reason, Note: e.Message, DeprecatedSource: e.Source,
		DeprecatedFirstTimestamp: e.FirstTimestamp, DeprecatedLastTimestamp: e.LastTimestamp, DeprecatedCount: e.Count,
		Type: e.Type, EventTime: e.EventTime, Action: e.Action, Related: e.Related,
		ReportingController: e.ReportingController, ReportingInstance: e.ReportingInstance,
	}
	if e.Series != nil {
		out.Series = &eventsv1.EventSeries{Count: e.Series.Count, LastObservedTime: e.Series.LastObservedTime}
	}
	return out
}

func eventFields(obj Object) fields.Set {
	set, e := namespacedFields(obj), obj.(*eventsv1.Event)
	for _, about := range []string{"involvedObject", "regarding"} {
		set[about+".kind"] = e.Regarding.Kind
		set[about+".namespace"] = e.Regarding.Namespace
		set[about+".name"] = e.Regarding.Name
		set[about+".uid"] = string(e.Regarding.UID)
		set[about+".apiVersion"] = e.Regarding.APIVersion
		set[about+".fieldPath"] = e.Regarding.FieldPath
		set[about+".resourceVersion"] = e.Regarding.ResourceVersion
	}
	set["reason"] = e.Reason
	set["type"] = e.Type
	set["reportingComponent"] = e.ReportingController
	set["reportingController"] = e.ReportingController
	set["source"] = e.DeprecatedSource.Component
	return set
}

// validateCoreEvent is what both APIs demand of an event.
func validateCoreEvent(updated, _ Object) field.ErrorList {
	e := updated.(*eventsv1.Event)
	var errs field.ErrorList
	about := field.NewPath("involvedObject", "namespace")
	if e.EventTime.IsZero() {
		same := e.Regarding.Namespace == e.Namespace || e.Regarding.Namespace == "" && e.Namespace == metav1.NamespaceDefault
		if !same {
			errs = append(errs, field.Invalid(about, e.Regarding.Namespace, "does not match event.namespace"))
		}
		return errs
	}
	if e.Regarding.Namespace == "" && e.Namespace != metav1.NamespaceDefault && e.Namespace != metav1.NamespaceSystem {
		errs = append(errs, field.Invalid(about, e.Regarding.Namespace, "does not match event.namespace"))
	}
	for _, msg := range validation.IsQualifiedName(e.ReportingController) {
		errs = append(errs, field.Invalid(field.NewPath("reportingController"), e.ReportingController, msg))
	}
	for _, text := range []struct{ name, value string }{{"reportingInstance", e.ReportingInstance}, {"action", e.Action}, {"reason", e.Reason}} {
		if text.value == "" {
			errs = append(errs, field.Required(field.NewPath(text.name), ""))
		}
		if len(text.value) > maxEventName {
			errs = append(errs, field.Invalid(field.NewPath(text.name), "", fmt.Sprintf("can have at most %d characters", maxEventName)))
		}
	}
	if len(e.Note) > maxEventNote {
		errs = append(errs, field.Invalid(field.NewPath("message"), "", fmt.Sprintf("can have at most %d characters", maxEventNote)))
	}
	return errs
}

// validateEvent is what events.k8s.io/v1 demands in addition.
func validateEvent(updated, old Object) field.ErrorList {
	e, errs := updated.(*eventsv1.Event), validateCoreEvent(updated, old)
	if e.Series != nil && e.Series.Count < 2 {
		errs = append(errs, field.Invalid(field.NewPath("series.count"), "", "should be at least 2"))
	}
	if old, ok := old.(*eventsv1.Event); ok {
		if e.Note != old.Note || e.Reason != old.Reason || e.Regarding != old.Regarding || e.Type != old.Type {
			errs = append(errs, field.Invalid(field.NewPath("note"), e.Note, "field is immutable"))
		}
		return errs
	}
	if e.EventTime.IsZero() {
		errs = append(errs, field.Required(field.NewPath("eventTime"), ""))
	}
	if e.Type != corev1.EventTypeNormal && e.Type != corev1.EventTypeWarning {
		errs = append(errs, field.Invalid(field.NewPath("type"), "", fmt.Sprintf("has invalid value: %v", e.Type)))
	}
	if e.DeprecatedCount != 0 || e.DeprecatedSource != (corev1.EventSource{}) || !e.DeprecatedFirstTimestamp.IsZero() || !e.DeprecatedLastTimestamp.IsZero() {
		errs = append(errs, field.Invalid(field.NewPath("deprecatedSource"), "", "needs to be unset"))
	}
	return errs
}
