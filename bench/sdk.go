package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"time"

	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/credentials/ec2rolecreds"
	"github.com/aws/aws-sdk-go-v2/feature/ec2/imds"

	"pod2role/sandbox/sts"
)

// fetch is what came of a pod's asking for its credentials, as a program in it would.
type fetch struct {
	begun time.Time
	took  time.Duration
	tries int   // requests that brought nothing, timed out or refused
	err   error // why there are no credentials
	other bool  // there are, and they are another role's
}

// client is how a program asks.
type client struct {
	name string
	get  func(context.Context, *pod) (accessKeyID string, tries int, err error)
}

// fetch asks once, as a program does when it starts.
func (c client) fetch(ctx context.Context, p *pod) fetch {
	begin := time.Now()
	id, tries, err := c.get(ctx, p)
	f := fetch{begun: begin, took: time.Since(begin), tries: tries, err: err}
	if err == nil {
		session, err := sts.Decode(id)
		f.other = err != nil || session.RoleARN != baseARN+p.role
	}
	return f
}

// botocore is the model of the least patient of all: a second to connect and to read for each request, and one attempt.
// A token that does not come in time it does without (botocore/utils.py, InstanceMetadataFetcher).
func botocore() client {
	const patience = time.Second
	return client{"botocore", func(ctx context.Context, p *pod) (id string, tries int, err error) {
		transport := &http.Transport{DialContext: dialer(p.addr).DialContext, ResponseHeaderTimeout: patience}
		defer transport.CloseIdleConnections()
		http := &http.Client{Transport: transport, Timeout: 2 * patience}
		ask := func(method, path string, header ...string) (string, int, error) {
			body, status, err := send(ctx, http, method, "http://"+p.w.app+path, header...)
			if err != nil || status != 200 {
				tries++
			}
			return body, status, err
		}
		token, status, err := ask("PUT", tokenPath, tokenTTLHeader, "21600")
		var header []string
		switch {
		case status == 400:
			return "", tries, errors.New("the token was refused")
		case err == nil && status == 200:
			header = []string{tokenHeader, token}
		}
		role, status, err := ask("GET", listPath, header...)
		if err != nil || status != 200 {
			return "", tries, outcome("the role's name", status, err)
		}
		document, status, err := ask("GET", listPath+role, header...)
		if err != nil || status != 200 {
			return "", tries, outcome("the credentials", status, err)
		}
		var keys struct{ AccessKeyID, SecretAccessKey, Token, Expiration string }
		if err := json.Unmarshal([]byte(document), &keys); err != nil {
			return "", tries, fmt.Errorf("reading the credentials: %w", err)
		}
		if keys.AccessKeyID == "" || keys.SecretAccessKey == "" || keys.Token == "" || keys.Expiration == "" {
			return "", tries, errors.New("the credentials are not whole")
		}
		return keys.AccessKeyID, tries, nil
	}}
}

// outcome is the error of a request that brought nothing.
func outcome(what string, status int, err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) || (err != nil && strings.Contains(err.Error(), "timeout")) {
		return fmt.Errorf("%s: no answer in time", what)
	} else if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return fmt.Errorf("%s: status %d", what, status)
}

// send sends a request and reads the answer.
func send(ctx context.Context, c *http.Client, method, url string, header ...string) (body string, status int, err error) {
	request, err := http.NewRequestWithContext(ctx, method, url, nil)
	if err != nil {
		return "", 0, err
	}
	for i := 0; i+1 < len(header); i += 2 {
		request.Header.Set(header[i], header[i+1])
	}
	response, err := c.Do(request)
	if err != nil {
		return "", 0, err
	}
	defer func() { _ = response.Body.Close() }()
	b, err := io.ReadAll(response.Body)
	return string(b), response.StatusCode, err
}

// goSDK is the AWS SDK for Go itself: it gives up a request after half a second without a header, and tries three times.
func goSDK() client {
	return client{"Go SDK", func(ctx context.Context, p *pod) (id string, tries int, err error) {
		requests := &counting{to: awshttp.NewBuildableClient().
			// What the SDK sets for the metadata service, where it is left to make the client.
			WithDialerOptions(func(d *net.Dialer) {
				*d = *dialer(p.addr)
				d.Timeout = 250 * time.Millisecond
			}).
			WithTransportOptions(func(t *http.Transport) { t.ResponseHeaderTimeout = 500 * time.Millisecond })}
		provider := ec2rolecreds.New(func(o *ec2rolecreds.Options) {
			o.Client = imds.New(imds.Options{Endpoint: "http://" + p.w.app, ClientEnableState: imds.ClientEnabled, HTTPClient: requests})
		})
		keys, err := provider.Retrieve(ctx)
		return keys.AccessKeyID, int(requests.failed.Load()), err
	}}
}

// counting counts the requests that brought nothing.
type counting struct {
	to     *awshttp.BuildableClient
	failed atomic.Int32
}

// Do implements imds.HTTPClient.
func (c *counting) Do(r *http.Request) (*http.Response, error) {
	response, err := c.to.Do(r)
	if err != nil || response.StatusCode != http.StatusOK {
		c.failed.Add(1)
	}
	return response, err
}
