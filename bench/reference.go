package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"
)

// referenceArg makes this program the reference: it reads answers from its standard input and serves them.
const referenceArg = "-serve-reference"

// answer is what the reference answers at a path: what the daemon has answered there.
type answer struct {
	Path   string
	Header map[string]string
	Body   string
}

// serveReference serves answers by a bare net/http handler, and says where on out, until ctx ends.
func serveReference(ctx context.Context, in io.Reader, out io.Writer) error {
	var answers []answer
	if err := json.NewDecoder(in).Decode(&answers); err != nil {
		return fmt.Errorf("reading the reference's answers: %w", err)
	}
	at := map[string]answer{} // :: path -> what to answer there
	for _, a := range answers {
		at[a.Path] = a
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("opening a port for the reference: %w", err)
	}
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a := at[r.URL.Path]
		for name, value := range a.Header {
			w.Header().Set(name, value)
		}
		_, _ = io.WriteString(w, a.Body) // a client that has gone needs no answer
	})}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	fmt.Fprintln(out, l.Addr())
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving the reference: %w", err)
	}
	return nil
}

// startReference starts this program anew as the reference, and returns where it listens.
func startReference(ctx context.Context, log io.Writer, answers []answer) (*process, string, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, "", fmt.Errorf("finding this program: %w", err)
	}
	given, err := json.Marshal(answers)
	if err != nil {
		return nil, "", fmt.Errorf("writing the reference's answers: %w", err)
	}
	said, out, err := os.Pipe()
	if err != nil {
		return nil, "", fmt.Errorf("starting the reference: %w", err)
	}
	defer func() { _ = said.Close() }()
	p, err := start(ctx, strings.NewReader(string(given)), out, log, nil, self, referenceArg)
	_ = out.Close() // the reference has its own
	if err != nil {
		return nil, "", err
	}
	addr, err := bufio.NewReader(said).ReadString('\n')
	if err != nil {
		p.end()
		return nil, "", fmt.Errorf("starting the reference: %w", err)
	}
	return p, strings.TrimSpace(addr), nil
}
