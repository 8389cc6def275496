package debug

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"net"
	"net/http"
	"net/http/pprof"
	"net/netip"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/sirupsen/logrus"
	"golang.org/x/sync/errgroup"
)

// Config says what to serve.
type Config struct {
	// NotReady returns what is still missing before pods can be served, a sentence each; nothing means ready.
	NotReady func() []string
	// Gatherer is where /metrics comes from; nil: an empty page.
	Gatherer prometheus.Gatherer
	// Views are the debug views, in the order of the index.
	Views []View
	// Log may be nil.
	Log *logrus.Entry
}

// View is one page of the debug endpoint.
type View struct {
	Path  string // below /debug/
	About string // what it shows, in a few words
	// Show returns what to print as JSON for the request. It must not contain a secret.
	Show func(*http.Request) (any, error)
}

// Debug serves the operator. Make one with [New].
type Debug struct {
	config Config
	page   *template.Template // the index
}

// New returns a Debug that serves nothing yet.
func New(c Config) (*Debug, error) {
	if c.NotReady == nil {
		return nil, errors.New("debug.Config.NotReady is missing")
	}
	if c.Gatherer == nil {
		c.Gatherer = prometheus.NewRegistry()
	}
	page, err := template.New("index").Parse(indexPage)
	if err != nil {
		return nil, fmt.Errorf("parsing the index: %w", err)
	}
	return &Debug{config: c, page: page}, nil
}

// Run serves health, readiness and metrics on public and the debug views on loopback until ctx ends. Either listener
// may be nil; Run closes both.
func (d *Debug) Run(ctx context.Context, public, loopback net.Listener) error {
	group, ctx := errgroup.WithContext(ctx)
	serve := func(l net.Listener, h http.Handler) {
		if l == nil {
			return
		}
		server := &http.Server{Handler: h, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10}
		group.Go(func() error {
			if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
				return fmt.Errorf("serving the operator on %s: %w", l.Addr(), err)
			}
			return nil
		})
		group.Go(func() error {
			<-ctx.Done()
			return server.Close()
		})
	}
	serve(public, d.Public())
	serve(loopback, d.Loopback())
	return group.Wait()
}

// Public returns the handler for the kubelet and Prometheus: /healthz, /readyz, /metrics.
func (d *Debug) Public() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", d.ready)
	mux.Handle("GET /metrics", promhttp.HandlerFor(d.config.Gatherer, promhttp.HandlerOpts{}))
	return mux
}

func (d *Debug) ready(w http.ResponseWriter, _ *http.Request) {
	missing := d.config.NotReady()
	if len(missing) == 0 {
		fmt.Fprintln(w, "ready")
		return
	}
	w.WriteHeader(http.StatusServiceUnavailable)
	fmt.Fprintln(w, "not ready: "+strings.Join(missing, "; "))
}

// Loopback returns the handler of the debug views. It refuses requests whose Host is not a loopback address or
// "localhost", and those of other origins.
func (d *Debug) Loopback() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", d.index)
	for _, v := range d.config.Views {
		mux.HandleFunc("GET /debug/"+v.Path, func(w http.ResponseWriter, r *http.Request) { d.show(w, r, v) })
	}
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	return onlyLocal(mux)
}

func (d *Debug) show(w http.ResponseWriter, r *http.Request, v View) {
	what, err := v.Show(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(what); err != nil && d.config.Log != nil {
		d.config.Log.WithError(err).WithField("view", v.Path).Warn("debug view was not written")
	}
}

const indexPage = `<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>pod2role</title>
<h1>pod2role</h1>
<p>{{if .Missing}}Not ready:{{range .Missing}} {{.}};{{end}}{{else}}Ready.{{end}}</p>
<ul>{{range .Views}}<li><a href="/debug/{{.Path}}">/debug/{{.Path}}</a> {{.About}}</li>
{{end}}<li><a href="/debug/pprof/">/debug/pprof/</a> Go's profiler</li></ul></html>
`

func (d *Debug) index(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	data := struct {
		Missing []string
		Views   []View
	}{d.config.NotReady(), d.config.Views}
	if err := d.page.Execute(w, data); err != nil && d.config.Log != nil {
		d.config.Log.WithError(err).Warn("debug index was not written")
	}
}

// onlyLocal refuses what a web page could make a browser on the node send: DNS rebinding shows in Host, a request from
// another site in Origin.
func onlyLocal(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !local(r.Host) || r.Header.Get("Origin") != "" && r.Header.Get("Origin") != "http://"+r.Host {
			http.Error(w, "the debug views answer only requests to a loopback address", http.StatusForbidden)
			return
		}
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		next.ServeHTTP(w, r)
	})
}

func local(host string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	a, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return host == "localhost" || err == nil && a.IsLoopback()
}
