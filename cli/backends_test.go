package cli

import (
	"testing"

	"pod2role/config"
	"pod2role/iptables"
)

func TestEveryBackEndOfTheRedirectCanBeAskedFor(t *testing.T) {
	for _, b := range iptables.Backends() {
		if c, err := config.Parse([]string{"--node=n", "--redirect-backend=" + b}, nil, nil); err != nil || c.RedirectBackend != b {
			t.Errorf("--redirect-backend=%s: got %q, %v", b, c.RedirectBackend, err)
		}
	}
}
