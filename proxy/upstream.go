package proxy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
)

const (
	// maxUpstream is how many connections to the real service there may be at once.
	maxUpstream = 16
	// maxReply is the largest document that is passed on. User data, the largest there is, has 16 KiB.
	maxReply = 256 << 10
)

// upstream is the real service, or what takes its place at the other end of MetadataURL. Nothing of a client's request
// reaches it but the canonical path.
type upstream struct {
	transport *http.Transport
	base      url.URL
	timeout   time.Duration
	session   upstreamSession
	flights   singleflight.Group
	owned     *sync.WaitGroup

	mu   sync.RWMutex
	kept map[string]*reply // :: canonical path -> what does not change while the instance runs
}

func newUpstream(cfg *Config, owned *sync.WaitGroup) (*upstream, error) {
	base, err := url.Parse(cfg.MetadataURL)
	if err != nil {
		return nil, fmt.Errorf("reading the metadata service's address: %w", err)
	}
	u := &upstream{
		base:    url.URL{Scheme: base.Scheme, Host: base.Host},
		timeout: cfg.UpstreamTimeout,
		owned:   owned,
		kept:    map[string]*reply{},
		transport: &http.Transport{
			Proxy:                  nil, // a proxy would get tokens, and could be made to ask for anything
			DialContext:            (&net.Dialer{Timeout: time.Second}).DialContext,
			DisableCompression:     true,
			MaxConnsPerHost:        maxUpstream,
			MaxIdleConnsPerHost:    maxUpstream,
			IdleConnTimeout:        30 * time.Second,
			ResponseHeaderTimeout:  2 * time.Second,
			MaxResponseHeaderBytes: maxHeader,
		},
	}
	u.session.send = u.send
	return u, nil
}

// close implements documents.
func (u *upstream) close() { u.transport.CloseIdleConnections() }

// cached implements documents.
func (u *upstream) cached(path string) *reply {
	u.mu.RLock()
	defer u.mu.RUnlock()
	return u.kept[path]
}

// get implements documents. Whoever asks for the same path at the same time shares one request, which outlives all of
// them.
func (u *upstream) get(ctx context.Context, path string) (*reply, error) {
	flight := u.flights.DoChan(path, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), u.timeout)
		defer cancel()
		found, err := u.persist(ctx, path)
		if err != nil {
			return nil, fmt.Errorf("asking the metadata service for %q: %w", path, err)
		}
		if found.status == http.StatusOK && immutable(path) {
			u.keep(path, found)
		}
		return found, nil
	})
	select {
	case <-ctx.Done():
		u.owned.Go(func() { <-flight }) // it goes on, for whoever asks again
		return nil, fmt.Errorf("waiting for the metadata service: %w", context.Cause(ctx))
	case landed := <-flight:
		found, _ := landed.Val.(*reply)
		return found, landed.Err
	}
}

func (u *upstream) keep(path string, found *reply) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.kept[path] = found
}

// immutable reports whether the document at path stays the same while the instance runs. It knows the version that
// everybody asks for alone: there are few such paths, so that no client can choose how much is kept.
func immutable(path string) bool {
	version, rest, _ := strings.Cut(strings.Trim(path, "/"), "/")
	if version != "latest" {
		return false
	}
	switch rest {
	case "dynamic/instance-identity/document",
		"meta-data/ami-id", "meta-data/ami-launch-index", "meta-data/instance-id", "meta-data/instance-life-cycle",
		"meta-data/instance-type", "meta-data/mac", "meta-data/reservation-id",
		"meta-data/placement/availability-zone", "meta-data/placement/availability-zone-id", "meta-data/placement/region",
		"meta-data/services/domain", "meta-data/services/partition":
		return true
	}
	return false
}

var errStillUnauthorized = errors.New("it does not accept the token that it has just given")

// pauses are the waits before further attempts: while an instance boots, the service may refuse connections, or tokens
// that it gave, for a moment.
func pauses() []time.Duration {
	return []time.Duration{50 * time.Millisecond, 200 * time.Millisecond, 500 * time.Millisecond}
}

// persist asks until there is an answer that is not a passing failure, or the attempts are used up.
func (u *upstream) persist(ctx context.Context, path string) (*reply, error) {
	for _, pause := range pauses() {
		found, err := u.ask(ctx, path)
		if err == nil && found.status < http.StatusInternalServerError {
			return found, nil
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return found, err
		}
	}
	return u.ask(ctx, path)
}

// ask asks once, and once more if the token has become invalid.
func (u *upstream) ask(ctx context.Context, path string) (*reply, error) {
	for range 2 {
		token, err := u.session.token(ctx)
		if err != nil {
			return nil, err
		}
		header := http.Header{}
		if token != "" {
			header.Set(tokenHeader, token)
		}
		found, _, err := u.send(ctx, http.MethodGet, path, header)
		switch {
		case err != nil:
			return nil, err
		case found.status == http.StatusUnauthorized:
			u.session.drop(token)
			continue
		case found.status >= 300 && found.status < 400:
			return nil, fmt.Errorf("it answers %d, a redirect, which is not followed", found.status)
		}
		return found, nil
	}
	return nil, errStillUnauthorized // not the client's 401: that one has a valid token of ours
}

// send sends one request. header becomes the request's.
func (u *upstream) send(ctx context.Context, method, path string, header http.Header) (*reply, http.Header, error) {
	target := u.base
	target.Path = path
	header.Set("User-Agent", "pod2role")
	r := (&http.Request{
		Method: method, URL: &target, Host: u.base.Host, Header: header,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}).WithContext(ctx)
	resp, err := u.transport.RoundTrip(r)
	if err != nil {
		return nil, nil, err // it names the address
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxReply+1))
	if err != nil {
		return nil, nil, fmt.Errorf("reading the answer: %w", err)
	}
	if len(body) > maxReply {
		return nil, nil, fmt.Errorf("the answer has more than %d bytes", maxReply)
	}
	return &reply{
		status:       resp.StatusCode,
		contentType:  cmp.Or(resp.Header.Get("Content-Type"), plainText),
		lastModified: resp.Header.Get("Last-Modified"),
		etag:         resp.Header.Get("Etag"),
		body:         body,
	}, resp.Header, nil
}
