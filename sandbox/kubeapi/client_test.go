package kubeapi_test

import (
	"context"
	"net"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"pod2role/sandbox/kubeapi"
)

// patience is when a test that waits for an event gives up: only a failure is that slow.
const patience = 15 * time.Second

// start serves until the test ends and returns the way to it.
func start(t *testing.T, cfg kubeapi.Config) (*kubeapi.Server, *rest.Config) {
	t.Helper()
	server := kubeapi.New(cfg)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	run(t, func(ctx context.Context) {
		if err := server.Run(ctx, ln); err != nil {
			t.Errorf("Run() = %v", err)
		}
	})
	return server, &rest.Config{Host: "http://" + ln.Addr().String(), BearerToken: cfg.Token, QPS: -1}
}

// run has f run until the test ends.
func run(t *testing.T, f func(context.Context)) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); f(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
}

func wait(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func clientset(t *testing.T, cfg *rest.Config) *kubernetes.Clientset {
	t.Helper()
	client, err := kubernetes.NewForConfig(cfg)
	check(t, err)
	return client
}

func newPod(name string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Labels: map[string]string{"app": name}}}
}

// feed turns an informer's notifications into values to wait on.
type feed struct {
	t    *testing.T
	news chan string
}

func (f feed) await(want string) {
	f.t.Helper()
	ctx := wait(f.t)
	for {
		select {
		case got := <-f.news:
			if got == want {
				return
			}
			f.t.Logf("passing over %q", got)
		case <-ctx.Done():
			f.t.Fatalf("the informer did not tell %q", want)
		}
	}
}

func watchWith(t *testing.T, informer cache.SharedIndexInformer, describe func(any) string) feed {
	t.Helper()
	f := feed{t: t, news: make(chan string, 1000)}
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { f.news <- "+" + describe(obj) },
		UpdateFunc: func(_, obj any) { f.news <- "~" + describe(obj) },
		DeleteFunc: func(obj any) {
			if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = gone.Obj
			}
			f.news <- "-" + describe(obj)
		},
	})
	check(t, err)
	run(t, func(ctx context.Context) { informer.RunWithContext(ctx) })
	if !cache.WaitForCacheSync(wait(t).Done(), informer.HasSynced) {
		t.Fatal("the informer did not sync")
	}
	return f
}

// podsOf runs an informer on the pods of a node, as the daemon does.
func podsOf(t *testing.T, cfg *rest.Config, node string) feed {
	t.Helper()
	factory := informers.NewSharedInformerFactoryWithOptions(clientset(t, cfg), 0, informers.WithTweakListOptions(func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector("spec.nodeName", node).String()
	}))
	return watchWith(t, factory.Core().V1().Pods().Informer(), func(obj any) string {
		pod := obj.(*corev1.Pod)
		return pod.Name + " " + pod.Status.PodIP
	})
}

func namespacesOf(t *testing.T, cfg *rest.Config) feed {
	t.Helper()
	client, err := metadata.NewForConfig(cfg)
	check(t, err)
	factory := metadatainformer.NewSharedInformerFactory(client, 0)
	informer := factory.ForResource(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}).Informer()
	return watchWith(t, informer, func(obj any) string {
		ns := obj.(*metav1.PartialObjectMetadata)
		return ns.Name + " " + ns.Annotations["role"]
	})
}

func newNamespace(name, role string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{"role": role}}}
}
