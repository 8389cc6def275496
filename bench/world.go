package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"pod2role/sandbox/cnirecord"
	"pod2role/sandbox/imds"
	"pod2role/sandbox/kubeapi"
	"pod2role/sandbox/sts"
)

const (
	node    = "node-1"
	account = "111122223333"
	baseARN = "arn:aws:iam::" + account + ":role/"
	region  = "eu-west-1"

	// startTimeout bounds how long the daemon may take until it is ready.
	startTimeout = time.Minute
)

// world is AWS and a cluster in this process, and the daemon in one of its own.
type world struct {
	bench   *bench
	imds    *imds.Server
	sts     *sts.Server
	api     *kubeapi.Server
	records *cnirecord.Writer
	args    []string
	env     []string
	pods    int // that were made

	daemon              *process
	app, metrics, debug string // where the daemon listens: host:port
}

// inWorld makes a world without a daemon, calls use with it, and takes everything down when use returns.
func (b *bench) inWorld(ctx context.Context, use func(context.Context, *world) error) error {
	dir, err := os.MkdirTemp(b.scratch, "world-")
	if err != nil {
		return fmt.Errorf("making a folder for the world: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		defer cancel()
		w, err := b.build(ctx, group, dir)
		if err != nil {
			return err
		}
		defer func() {
			if w.daemon != nil {
				w.daemon.end()
			}
		}()
		return use(ctx, w)
	})
	return group.Wait()
}

// build starts the sandbox.
func (b *bench) build(ctx context.Context, group *errgroup.Group, dir string) (*world, error) {
	certificate, authority, err := kubeapi.SelfSigned()
	if err != nil {
		return nil, err
	}
	w := &world{
		bench:   b,
		imds:    imds.New(imds.Config{Account: account, Region: region}),
		sts:     sts.New(sts.Config{Account: account}),
		api:     kubeapi.New(kubeapi.Config{Token: "bench", Certificate: &certificate}),
		records: cnirecord.New(cnirecord.Config{Dir: filepath.Join(dir, "results")}),
	}
	addrs := make([]string, 3)
	for i, serve := range []func(context.Context, net.Listener) error{w.imds.Serve, w.sts.Serve, w.api.Run} {
		l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
		if err != nil {
			return nil, fmt.Errorf("opening a port for the sandbox: %w", err)
		}
		addrs[i] = l.Addr().String()
		group.Go(func() error { return serve(ctx, l) })
	}
	kubeconfig, err := kubeapi.Kubeconfig("https://"+addrs[2], "bench", authority)
	if err != nil {
		return nil, err
	}
	file, results := filepath.Join(dir, "kubeconfig"), filepath.Join(dir, "results")
	if err := errors.Join(os.Mkdir(results, 0o700), os.WriteFile(file, kubeconfig, 0o600)); err != nil {
		return nil, fmt.Errorf("making the world: %w", err)
	}
	w.args = []string{
		"run", "--node=" + node, "--kubeconfig=" + file, "--cni-results-dir=" + results, "--metadata-addr=" + addrs[0], "--region=" + region,
		"--redirect=off", "--direct=allow", "--host-ip=192.0.2.1", "--base-role-arn=" + baseARN, "--drain=0s",
	}
	// Nothing of the user's own: the daemon must find no AWS but this one.
	w.env = []string{
		"AWS_ENDPOINT_URL_STS=http://" + addrs[1], "AWS_ACCESS_KEY_ID=AKIABENCHBENCHBENCH0", "AWS_SECRET_ACCESS_KEY=bench",
		"AWS_CONFIG_FILE=" + os.DevNull, "AWS_SHARED_CREDENTIALS_FILE=" + os.DevNull,
		"AWS_EC2_METADATA_DISABLED=true", "AWS_EC2_METADATA_SERVICE_ENDPOINT=http://" + addrs[0], "HOME=" + dir,
	}
	return w, nil
}

// withoutRecords makes the daemon do without the CNI's records.
const withoutRecords = "--cni-results-dir="

// start starts the daemon, with further arguments, and waits until it is ready.
func (w *world) start(ctx context.Context, extra ...string) error {
	ports, err := freePorts(ctx, 3)
	if err != nil {
		return err
	}
	w.app, w.metrics, w.debug = "127.0.0.1:"+ports[0], "127.0.0.1:"+ports[1], "127.0.0.1:"+ports[2]
	args := append(append([]string{}, w.args...), "--app-port="+ports[0], "--metrics-port="+ports[1], "--debug-addr="+w.debug)
	said, err := os.CreateTemp(w.bench.scratch, "daemon-*.log")
	if err != nil {
		return fmt.Errorf("making a file for the daemon's log: %w", err)
	}
	defer func() { _ = said.Close() }() // the daemon has its own copy of the handle
	if w.daemon, err = start(ctx, nil, nil, said, w.env, w.bench.binary, append(args, extra...)...); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		if _, err = get(ctx, "http://"+w.metrics+"/readyz"); err == nil {
			return nil
		}
		select {
		case <-w.daemon.ended:
			log, _ := os.ReadFile(said.Name()) // what it says is better than nothing, and nothing is no reason to stop
			return fmt.Errorf("the daemon has ended: %w\n%s", w.daemon.err, log)
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("waiting for the daemon to be ready: %w", err)
		}
	}
}

// freePorts finds ports that are free at the moment, below those that systems give to outgoing connections: one of these
// might be gone by the time that the daemon opens it.
func freePorts(ctx context.Context, n int) ([]string, error) {
	var ports []string
	var err error
	for tries := 0; len(ports) < n && tries < 100; tries++ {
		var l net.Listener
		port := strconv.Itoa(20_000 + rand.IntN(10_000))
		if l, err = new(net.ListenConfig).Listen(ctx, "tcp", ":"+port); err == nil {
			defer func() { _ = l.Close() }() // all are held until all are found, so that they differ
			ports = append(ports, port)
		}
	}
	if len(ports) < n {
		return nil, fmt.Errorf("looking for a free port: %w", err)
	}
	return ports, nil
}

// get reads a page of the daemon's own.
func get(ctx context.Context, url string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	response, err := new(http.Client).Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s answers %d: %s", url, response.StatusCode, body)
	}
	return body, err
}

// pod is a pod of the world, and its address.
type pod struct {
	w               *world
	namespace, name string
	role            string
	uid             types.UID
	addr            netip.Addr
}

// namespace creates a namespace that allows its pods every role.
func (w *world) namespace(name string) error {
	return w.api.Apply(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: name, Annotations: map[string]string{"iam.amazonaws.com/allowed-roles": `["*"]`},
	}})
}

// pod makes a pod that the cluster does not know yet.
func (w *world) pod(namespace, role string) *pod {
	w.pods++
	n := w.pods
	return &pod{
		w: w, namespace: namespace, name: fmt.Sprintf("pod-%d", n), role: role,
		uid:  types.UID(fmt.Sprintf("00000000-0000-4000-8000-%012d", n)),
		addr: netip.AddrFrom4([4]byte{127, byte(1 + n/62500), byte(n / 250 % 250), byte(n%250 + 1)}),
	}
}

// object is the pod as somebody created it.
func (p *pod) object() *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: p.namespace, Name: p.name, UID: p.uid, Annotations: map[string]string{"iam.amazonaws.com/role": p.role},
	}}
}

// schedule puts the pod on the node: it has no address yet.
func (p *pod) schedule() error { return p.w.api.StartPod(node, p.object()) }

// give gives the pod its address, of which the runtime keeps a record.
func (p *pod) give() error {
	return p.w.records.Add(cnirecord.Attachment{UID: string(p.uid), Namespace: p.namespace, Name: p.name, Addrs: []netip.Addr{p.addr}})
}

// tell tells the API server the pod's address, as the kubelet does.
func (p *pod) tell() error { return p.w.api.RunPod(p.namespace, p.name, p.addr) }

// run does all three.
func (p *pod) run() error { return errors.Join(p.schedule(), p.give(), p.tell()) }
