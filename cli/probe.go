package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// probeCommand asks a running daemon how it is, for the kubelet: an exec probe needs no port that a pod could reach.
func probeCommand(s streams) *cobra.Command {
	var addr, socket string
	cmd := &cobra.Command{
		Use:       "probe ready|live",
		Short:     "Ask the daemon on this node whether it is ready, or alive",
		ValidArgs: []string{"ready", "live"},
		Args:      usageArgs(cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs)),
		RunE: func(cmd *cobra.Command, args []string) error {
			path := map[string]string{"ready": "readyz", "live": "healthz"}[args[0]]
			answer, err := probe(cmd.Context(), "http://"+addr+"/"+path, socket)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(s.out, answer)
			return err
		},
	}
	cmd.Flags().StringVar(&addr, "addr", "127.0.0.1:8182", "where the daemon serves health and readiness (--metrics-port)")
	cmd.Flags().StringVar(&socket, "socket", "", "the unix socket where it does so (--probe-socket), in place of --addr")
	return cmd
}

// probe returns the answer of the daemon's health or readiness page, or an error if it is not a good one. It asks by way of
// the unix socket, if one is given.
func probe(ctx context.Context, url, socket string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", usageError{err}
	}
	transport := &http.Transport{Proxy: nil}
	if socket != "" {
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		}
	}
	client := &http.Client{Transport: transport}
	defer client.CloseIdleConnections()
	response, err := client.Do(request)
	if err != nil {
		return "", fmt.Errorf("asking the daemon: %w", err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, 16<<10))
	if err != nil {
		return "", fmt.Errorf("reading the daemon's answer: %w", err)
	}
	answer := strings.TrimSpace(string(body))
	if response.StatusCode != http.StatusOK {
		return "", errors.New(answer)
	}
	return answer, nil
}
