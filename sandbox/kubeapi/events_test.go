package kubeapi_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"

	"pod2role/sandbox/kubeapi"
)

func TestEventRecorderIsHeardInBothAPIs(t *testing.T) {
	server, cfg := start(t, kubeapi.Config{})
	client := clientset(t, cfg)
	pod := newPod("a")
	check(t, server.Apply(pod))
	broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: client.EventsV1()})
	defer broadcaster.Shutdown()
	check(t, broadcaster.StartRecordingToSinkWithContext(t.Context()))
	recorder := broadcaster.NewRecorder(scheme.Scheme, "pod2role.io/agent")

	recorder.Eventf(pod, nil, corev1.EventTypeWarning, "RoleForbidden", "AssumeRole", "role %s", "x")
	got, err := server.WaitForEvents(wait(t), 1, nil)
	check(t, err)
	if got[0].Note != "role x" || got[0].Regarding.UID != pod.UID {
		t.Errorf("event = %v, want note %q on %s", got[0], "role x", pod.UID)
	}
	recorder.Eventf(pod, nil, corev1.EventTypeWarning, "RoleForbidden", "AssumeRole", "role %s", "x")
	_, err = server.WaitForEvents(wait(t), 1, func(e *eventsv1.Event) bool { return e.Series != nil && e.Series.Count == 2 })
	check(t, err)

	list, err := client.CoreV1().Events("shop").List(t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.name=a"})
	check(t, err)
	if len(list.Items) != 1 || list.Items[0].Message != "role x" || list.Items[0].Series.Count != 2 {
		t.Errorf("events of the core API = %v, want the one", list.Items)
	}
}

func TestEventsThatKubeAPIServerWouldRefuse(t *testing.T) {
	server, cfg := start(t, kubeapi.Config{})
	for _, tt := range []struct {
		name   string
		change func(*eventsv1.Event)
		refuse bool
	}{
		{name: "a right one", change: func(*eventsv1.Event) {}},
		{name: "a long note", change: func(e *eventsv1.Event) { e.Note = strings.Repeat("x", 1025) }, refuse: true},
		{name: "no reason", change: func(e *eventsv1.Event) { e.Reason = "" }, refuse: true},
		{name: "no action", change: func(e *eventsv1.Event) { e.Action = "" }, refuse: true},
		{name: "a type of its own", change: func(e *eventsv1.Event) { e.Type = "Error" }, refuse: true},
		{name: "no time", change: func(e *eventsv1.Event) { e.EventTime = metav1.MicroTime{} }, refuse: true},
		{name: "a controller with a space", change: func(e *eventsv1.Event) { e.ReportingController = "pod 2 role" }, refuse: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			event := &eventsv1.Event{
				ObjectMeta: metav1.ObjectMeta{GenerateName: "a."}, EventTime: metav1.NowMicro(), ReportingController: "pod2role",
				ReportingInstance: "n1", Action: "AssumeRole", Reason: "RoleForbidden", Type: "Warning",
				Regarding: corev1.ObjectReference{Kind: "Pod", Namespace: "shop", Name: "a"},
			}
			tt.change(event)
			_, err := clientset(t, cfg).EventsV1().Events("shop").Create(t.Context(), event, metav1.CreateOptions{})
			if tt.refuse != apierrors.IsInvalid(err) || !tt.refuse && err != nil {
				t.Errorf("Create() = %v, want it refused: %v", err, tt.refuse)
			}
		})
	}
	if got := len(server.Events()); got != 1 {
		t.Errorf("%d events exist, want 1", got)
	}
}
