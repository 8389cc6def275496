package migrate

import "testing"

func TestWhatBecameOfAFlag(t *testing.T) {
	for name, want := range map[string]string{
		"backoff-max-elapsed-time": "use --hold, which says how long the request of a pod that is not known yet is held",
		"session-duration":         "use --iam-role-session-ttl",
		"ca":                       "drop it: there is no server to talk to",
	} {
		if got, ok := FlagAdvice(name); !ok || got != want {
			t.Errorf("%s: %q, %v; want %q", name, got, ok, want)
		}
	}
	if got, ok := FlagAdvice("node"); ok {
		t.Errorf("node: %q, though it is a flag of ours", got)
	}
}
