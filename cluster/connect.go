package cluster

import (
	"fmt"
	"net"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Clients are connections to one API server.
type Clients struct {
	Core     kubernetes.Interface
	Metadata metadata.Interface
}

// Connect returns clients for the cluster that kubeconfig, the path of a file, describes; "": for the cluster that this
// process runs in, as its service account. version goes into the user agent. It sends nothing.
func Connect(kubeconfig, version string) (*Clients, error) {
	var cfg *rest.Config
	var err error
	if kubeconfig == "" {
		if cfg, err = rest.InClusterConfig(); err != nil {
			return nil, fmt.Errorf("finding the cluster that this pod runs in (outside of one, give a kubeconfig): %w", err)
		}
	} else if cfg, err = clientcmd.BuildConfigFromFlags("", kubeconfig); err != nil {
		return nil, fmt.Errorf("reading kubeconfig %q: %w", kubeconfig, err)
	}
	return ConnectTo(cfg, version)
}

// ConnectTo is Connect for a configuration that the caller has; it is not modified.
func ConnectTo(cfg *rest.Config, version string) (*Clients, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.UserAgent = "pod2role/" + version
	// Direct reads, which are limited by who asks for them, and Events share these limits with a handful of lists.
	cfg.QPS, cfg.Burst = 50, 100
	// A connection that has died without a word is found out in 15 s, so that the watch is not late for the 45 s that
	// HTTP/2's own check would take.
	cfg.Dial = (&net.Dialer{
		Timeout:         5 * time.Second,
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 6 * time.Second, Interval: 3 * time.Second, Count: 3},
	}).DialContext
	client, err := rest.HTTPClientFor(cfg) // one for both, so that they share connections
	if err != nil {
		return nil, fmt.Errorf("preparing the connection to the API server: %w", err)
	}
	// Protobuf takes a fraction of JSON's time and memory
	// (https://kubernetes.io/docs/reference/using-api/api-concepts/#alternate-representations-of-resources).
	core := rest.CopyConfig(cfg)
	core.ContentType, core.AcceptContentTypes = runtime.ContentTypeProtobuf, runtime.ContentTypeProtobuf+","+runtime.ContentTypeJSON
	clientset, err := kubernetes.NewForConfigAndClient(core, client)
	if err != nil {
		return nil, fmt.Errorf("preparing the client for pods: %w", err)
	}
	names, err := metadata.NewForConfigAndClient(metadata.ConfigFor(cfg), client)
	if err != nil {
		return nil, fmt.Errorf("preparing the client for namespaces: %w", err)
	}
	return &Clients{Core: clientset, Metadata: names}, nil
}
