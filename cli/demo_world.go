package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"pod2role/config"
	"pod2role/sandbox/cnirecord"
	"pod2role/sandbox/imds"
	"pod2role/sandbox/kubeapi"
	"pod2role/sandbox/sts"
)

const (
	demoNode    = "laptop"
	demoAccount = "111122223333"
	demoBaseARN = "arn:aws:iam::" + demoAccount + ":role/"
	demoRegion  = "eu-west-1"
)

// world is AWS, a cluster and the daemon, all on the loopback interface. Pods are loopback addresses: on Linux all of
// 127.0.0.0/8 is local, so that a pod's requests really come from its address.
type world struct {
	imds    *imds.Server
	sts     *sts.Server
	api     *kubeapi.Server
	records *cnirecord.Writer
	daemon  *daemon

	app, debug string // where the daemon answers pods, and shows its views: host:port
	pods       int    // that were started
}

// runWorld builds a world, calls use with it once the daemon is ready, and takes everything down when use returns.
func runWorld(ctx context.Context, out outside, use func(context.Context, *world) error, extra ...string) (err error) {
	dir, err := os.MkdirTemp("", "pod2role-demo-")
	if err != nil {
		return fmt.Errorf("making a folder for the demo: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		defer cancel()
		w := &world{}
		args, err := w.build(ctx, group, dir)
		if err != nil {
			return err
		}
		if err := w.start(ctx, group, out, append(args, extra...)); err != nil {
			return err
		}
		return use(ctx, w)
	})
	return group.Wait()
}

// build starts the sandbox and returns the daemon's arguments to find it.
func (w *world) build(ctx context.Context, group *errgroup.Group, dir string) ([]string, error) {
	certificate, authority, err := kubeapi.SelfSigned()
	if err != nil {
		return nil, err
	}
	w.imds = imds.New(imds.Config{Account: demoAccount, Region: demoRegion})
	w.sts = sts.New(sts.Config{Account: demoAccount})
	w.api = kubeapi.New(kubeapi.Config{Token: "demo", Certificate: &certificate})
	addrs := make([]string, 3)
	for i, serve := range []func(context.Context, net.Listener) error{w.imds.Serve, w.sts.Serve, w.api.Run} {
		l, err := listenLoopback(ctx)
		if err != nil {
			return nil, err
		}
		addrs[i] = l.Addr().String()
		group.Go(func() error { return serve(ctx, l) })
	}

	// The AWS SDK takes these from the environment, as it does on a node. What the user has configured stays out.
	for name, value := range map[string]string{
		"AWS_ENDPOINT_URL_STS": "http://" + addrs[1], "AWS_ACCESS_KEY_ID": "AKIADEMODEMODEMO", "AWS_SECRET_ACCESS_KEY": "demo",
		"AWS_SESSION_TOKEN": "", "AWS_PROFILE": "", "AWS_CONFIG_FILE": os.DevNull, "AWS_SHARED_CREDENTIALS_FILE": os.DevNull,
		"AWS_EC2_METADATA_DISABLED": "true", "AWS_CA_BUNDLE": "", "NO_PROXY": "127.0.0.1",
	} {
		if err := os.Setenv(name, value); err != nil {
			return nil, err
		}
	}
	kubeconfig, err := kubeapi.Kubeconfig("https://"+addrs[2], "demo", authority)
	if err != nil {
		return nil, err
	}
	results := filepath.Join(dir, "results")
	file := filepath.Join(dir, "kubeconfig")
	if err := errors.Join(os.Mkdir(results, 0o700), os.WriteFile(file, kubeconfig, 0o600)); err != nil {
		return nil, err
	}
	if err := w.api.Apply(&corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: demoNode, Labels: map[string]string{
			corev1.LabelTopologyZone: demoRegion + "c", corev1.LabelTopologyRegion: demoRegion,
		}},
		Spec: corev1.NodeSpec{ProviderID: "aws:///" + demoRegion + "c/i-00000000000000ace"},
	}); err != nil {
		return nil, err
	}
	w.records = cnirecord.New(cnirecord.Config{Dir: results})
	return []string{
		"--node=" + demoNode, "--kubeconfig=" + file, "--cni-results-dir=" + results, "--metadata-addr=" + addrs[0], "--region=" + demoRegion,
		"--redirect=off", "--direct=allow", // there is no rule without root, so every request reaches the port directly
		"--host-ip=192.0.2.1", "--base-role-arn=" + demoBaseARN,
	}, nil
}

// start assembles and runs the daemon, and waits until it is ready.
func (w *world) start(ctx context.Context, group *errgroup.Group, out outside, args []string) error {
	c, err := config.Parse(args, nil, nil, mistakenRules)
	if err != nil {
		return err
	}
	var l listeners
	for _, to := range []*net.Listener{&l.app, &l.metrics, &l.debug} {
		if *to, err = listenLoopback(ctx); err != nil {
			l.close()
			return err
		}
	}
	w.app, w.debug = l.app.Addr().String(), l.debug.Addr().String()
	if w.daemon, err = assemble(ctx, c, out); err != nil {
		l.close()
		return err
	}
	group.Go(func() error { return w.daemon.Run(ctx, l) })
	select {
	case <-w.daemon.Ready():
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func listenLoopback(ctx context.Context) (net.Listener, error) {
	var plain net.ListenConfig
	plain.SetMultipathTCP(false)
	return plain.Listen(ctx, "tcp", "127.0.0.1:0")
}

// demoPod is a pod of the world.
type demoPod struct {
	w               *world
	namespace, name string
	uid             types.UID
	addr            netip.Addr
}

func (p demoPod) String() string { return p.namespace + "/" + p.name }

// namespace creates a namespace; allowed is its annotation, none if empty.
func (w *world) namespace(name, allowed string) error {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if allowed != "" {
		ns.Annotations = map[string]string{"iam.amazonaws.com/allowed-roles": allowed}
	}
	return w.api.Apply(ns)
}

// schedule puts a pod on the node, as the scheduler does: it has no address yet.
func (w *world) schedule(namespace, name, role string) (demoPod, error) {
	w.pods++
	p := demoPod{w: w, namespace: namespace, name: name, uid: types.UID(fmt.Sprintf("00000000-0000-4000-8000-%012d", w.pods))}
	p.addr = netip.AddrFrom4([4]byte{127, 0, byte(w.pods / 250), byte(w.pods%250 + 1)})
	object := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: p.uid}}
	if role != "" {
		object.Annotations = map[string]string{"iam.amazonaws.com/role": role}
	}
	return p, w.api.StartPod(demoNode, object)
}

// attachment is the pod's interface, as the CNI plugin made it.
func (p demoPod) attachment() cnirecord.Attachment {
	return cnirecord.Attachment{UID: string(p.uid), Namespace: p.namespace, Name: p.name, Addrs: []netip.Addr{p.addr}}
}

// give gives the pod its address, as the CNI plugin does: libcni notes it, and the API server does not know yet.
func (p demoPod) give() error { return p.w.records.Add(p.attachment()) }

// run gives the pod its address and reports it running, as the kubelet does in the end.
func (p demoPod) run() error {
	if err := p.give(); err != nil {
		return err
	}
	return p.w.api.RunPod(p.namespace, p.name, p.addr)
}

// answer is what a pod was told.
type answer struct {
	code int
	body string
	took time.Duration
	err  error
}

// ask sends one request from the pod's address, as a program in the pod would to http://169.254.169.254.
func (p demoPod) ask(ctx context.Context, method, path string, header ...string) answer {
	request, err := http.NewRequestWithContext(ctx, method, "http://"+p.w.app+path, nil)
	if err != nil {
		return answer{err: err}
	}
	for i := 0; i+1 < len(header); i += 2 {
		request.Header.Set(header[i], header[i+1])
	}
	dialer := &net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(p.addr, 0))}
	client := &http.Client{Transport: &http.Transport{DialContext: dialer.DialContext, DisableKeepAlives: true}, Timeout: 30 * time.Second}
	begin := time.Now()
	response, err := client.Do(request)
	if err != nil {
		return answer{err: err, took: time.Since(begin)}
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return answer{code: response.StatusCode, body: string(body), took: time.Since(begin), err: err}
}

const (
	listPath  = "/latest/meta-data/iam/security-credentials/"
	tokenPath = "/latest/api/token"
)

// credentials does what an SDK does: a token, the role's name, the role's credentials. It returns the answer that ended
// it, and whose session the credentials are.
func (p demoPod) credentials(ctx context.Context) (answer, sts.Session) {
	begin := time.Now()
	token := p.ask(ctx, http.MethodPut, tokenPath, "X-aws-ec2-metadata-token-ttl-seconds", "21600")
	if token.code != http.StatusOK {
		return token, sts.Session{}
	}
	role := p.ask(ctx, http.MethodGet, listPath, "X-aws-ec2-metadata-token", token.body)
	if role.code != http.StatusOK {
		return role, sts.Session{}
	}
	keys := p.ask(ctx, http.MethodGet, listPath+role.body, "X-aws-ec2-metadata-token", token.body)
	keys.took = time.Since(begin)
	session, _ := sts.Decode(field(keys.body, "AccessKeyId")) // the zero Session says that it is nobody's
	return keys, session
}

// field takes a string out of a flat JSON object.
func field(object, name string) string {
	_, rest, _ := strings.Cut(object, `"`+name+`"`)
	_, rest, _ = strings.Cut(rest, `"`)
	value, _, _ := strings.Cut(rest, `"`)
	return value
}
