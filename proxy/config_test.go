package proxy

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

func TestNewRefusesWhatCannotWork(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*Config)
		want   string // part of the error; empty: none
	}{
		{"nothing", func(*Config) {}, ""},
		{"nobody decides", func(c *Config) { c.Decide = nil }, "Decide"},
		{"nobody has credentials", func(c *Config) { c.Credentials = nil }, "Credentials"},
		{"a short key", func(c *Config) { c.TokenKey = c.TokenKey[:16] }, "16 bytes"},
		{"a write time-out below the hold", func(c *Config) { c.Hold, c.WriteTimeout = 15*time.Second, time.Second }, "write time-out"},
		{"a write time-out that leaves no time for the real service", func(c *Config) {
			c.Hold, c.UpstreamTimeout, c.WriteTimeout = 5*time.Second, 4*time.Second, 9*time.Second
		}, "write time-out"},
		{"a write time-out that is long enough", func(c *Config) {
			c.Hold, c.UpstreamTimeout, c.WriteTimeout = 5*time.Second, 4*time.Second, 9*time.Second+1
		}, ""},
		{"an unknown token mode", func(c *Config) { c.TokenMode = "sometimes" }, "sometimes"},
		{"an impossible hop limit", func(c *Config) { c.TokenHopLimit = 65 }, "65"},
		{"a negative time", func(c *Config) { c.Drain = -1 }, "negative"},
		{"a negative limit", func(c *Config) { c.MaxConnections = -1 }, "negative"},
		{"no metadata service", func(c *Config) { c.MetadataURL = "" }, "http://host:port"},
		{"a metadata service over TLS", func(c *Config) { c.MetadataURL = "https://h" }, "http://host:port"},
		{"a metadata service with a path", func(c *Config) { c.MetadataURL = "http://h/x" }, "http://host:port"},
		{"a metadata service that is no URL", func(c *Config) { c.MetadataURL = "http://[" }, "cannot be reached"},
		{"an unknown mode", func(c *Config) { c.PassThrough.Mode = "all" }, "all"},
		{"a broken expression", func(c *Config) { c.PassThrough.Allow = []string{"/a", "("} }, `"("`},
		{"an expression that leaves its group", func(c *Config) { c.PassThrough.Allow = []string{"a)|(b"} }, `"a)|(b"`},
		{"an emulation whose zone comes later", func(c *Config) { c.Emulate = &Instance{} }, ""},
		{"an emulation without a region", func(c *Config) { c.Emulate = &Instance{Zone: "here"} }, "here"},
		{"an emulation needs no metadata service", func(c *Config) {
			c.Emulate, c.MetadataURL = &Instance{Zone: "eu-west-1a"}, ""
		}, ""},
		{"metrics that exist", func(c *Config) {
			r := prometheus.NewRegistry()
			if _, err := newMetrics(r, nil); err != nil {
				t.Fatal(err)
			}
			c.Registerer = r
		}, "metrics"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cfg := testConfig("http://127.0.0.1:1")
			tt.change(&cfg)
			_, err := New(cfg)
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("New returned %v, want %q", err, tt.want)
			}
		})
	}
}
