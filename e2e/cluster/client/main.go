package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"pod2role/e2e/cluster"
)

const (
	service   = "http://169.254.169.254"
	tokenPath = "/latest/api/token"
	listPath  = "/latest/meta-data/iam/security-credentials/"

	tokenHeader = "X-Aws-Ec2-Metadata-Token"
	ttlHeader   = "X-Aws-Ec2-Metadata-Token-Ttl-Seconds"
)

func main() { os.Exit(run(time.Now())) }

// run asks until it has credentials, or, if that is told, without end. It returns 1 if there are none at the end.
func run(start time.Time) int {
	attempts := flag.Int("attempts", 1, "how often to ask at most; 0: without end, also when there are credentials")
	every := flag.Duration("every", time.Second, "how often an attempt begins, if there is more than one")
	flag.Parse()
	again := time.Tick(*every)
	for n := 1; ; n++ {
		a := attempt(start)
		report(a)
		switch {
		case *attempts == 0:
		case a.Error == "":
			return 0
		case n == *attempts:
			return 1
		}
		<-again
		start = time.Now()
	}
}

func report(a cluster.Attempt) {
	line, err := json.Marshal(a)
	if err != nil { // the document that came is no JSON
		a.Error, a.Document = err.Error(), nil
		line, _ = json.Marshal(a)
	}
	fmt.Println(string(line))
}

// attempt asks as a new process does, on a connection of its own.
func attempt(start time.Time) cluster.Attempt {
	transport := &http.Transport{} // without a proxy
	defer transport.CloseIdleConnections()
	c := &http.Client{Transport: transport, Timeout: time.Second}

	a := cluster.Attempt{Start: start}
	a.Pod, _ = os.Hostname()
	token, took, err := ask(c, http.MethodPut, tokenPath, ttlHeader, "21600")
	a.Token = took
	if err != nil {
		a.Tokenless = err.Error()
	}
	var role, document string
	role, a.List, err = ask(c, http.MethodGet, listPath, tokenHeader, token)
	if err == nil {
		role, _, _ = strings.Cut(role, "\n")
		document, a.Role, err = ask(c, http.MethodGet, listPath+role, tokenHeader, token)
	}
	if err == nil {
		a.Document, err = json.RawMessage(document), complete(document)
	}
	a.Total = time.Since(start)
	if err != nil {
		a.Error = err.Error()
	}
	return a
}

// ask sends one request, with the header if it has a value, and returns the body of the answer, which has to be 200.
func ask(c *http.Client, method, path, header, value string) (body string, took time.Duration, err error) {
	begin := time.Now()
	defer func() { took = time.Since(begin) }()
	r, err := http.NewRequest(method, service+path, nil)
	if err != nil {
		return "", 0, err
	}
	if value != "" {
		r.Header.Set(header, value)
	}
	answer, err := c.Do(r)
	if err != nil {
		return "", 0, err // it says method and path
	}
	defer answer.Body.Close()
	content, err := io.ReadAll(answer.Body)
	switch {
	case err != nil:
		return "", 0, fmt.Errorf("reading the answer to %s %s: %w", method, path, err)
	case answer.StatusCode != http.StatusOK:
		return "", 0, fmt.Errorf("%s %s: %s: %s", method, path, answer.Status, strings.TrimSpace(string(content)))
	}
	return string(content), 0, nil
}

// complete tells whether a document has what botocore requires of it.
func complete(document string) error {
	var d struct{ AccessKeyID, SecretAccessKey, Token, Expiration string }
	if err := json.Unmarshal([]byte(document), &d); err != nil {
		return fmt.Errorf("reading the credentials: %w", err)
	}
	if d.AccessKeyID == "" || d.SecretAccessKey == "" || d.Token == "" || d.Expiration == "" {
		return errors.New("the credentials are not complete")
	}
	return nil
}
