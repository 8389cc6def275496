package cli

import (
	"fmt"
	"os"
	"strconv"
	"sync"
	"testing"

	"pod2role/mappings"
)

func setting(t *testing.T, name string, usual uint64) uint64 {
	t.Helper()
	text, ok := os.LookupEnv(name)
	if !ok {
		return usual
	}
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// tally is what came of the requests.
type tally struct {
	mu                                sync.Mutex
	verdicts                          map[mappings.Verdict]int
	held, served, unserved, strangers int
	calls, granted, renewed, refused  int
}

func (c *tally) String() string {
	return fmt.Sprintf("requests by verdict %v, %d allowed after a hold; %d were given a session, %d none although allowed one; %d of processes that are no pods; %d calls to STS, %d granted, %d of them renewals, %d refused",
		c.verdicts, c.held, c.served, c.unserved, c.strangers, c.calls, c.granted, c.renewed, c.refused)
}

func (c *tally) lacks() bool {
	return c.held == 0 || c.served == 0 || c.unserved == 0 || c.strangers == 0 || c.renewed == 0 || c.refused == 0 ||
		c.verdicts[mappings.Pending] == 0 || c.verdicts[mappings.Forbidden] == 0 || c.verdicts[mappings.NoRole] == 0
}
