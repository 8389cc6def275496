package e2e_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"pod2role/e2e/testnet"
)

// programs is the environment variable with the folder of the programs that the tests run.
const programs = "POD2ROLE_E2E_PROGRAMS"

func TestMain(m *testing.M) { os.Exit(run(m)) }

// run builds the programs, as long as there is a network to fetch modules by: testnet.Main may go on without one, in
// another process.
func run(m *testing.M) int {
	if os.Getenv(programs) != "" {
		return testnet.Main(m)
	}
	dir, err := os.MkdirTemp("", "pod2role-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, "making a folder for the tests' programs:", err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err := os.Setenv(programs, dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if err := build("..", slices.Concat(raceFlags(), []string{"-ldflags=-s -w", "-o", dir, "pod2role"})); err != nil {
		fmt.Fprintln(os.Stderr, "building the daemon:", err)
		return 1
	}
	if err := build("clients", []string{"-ldflags=-s -w", "-o", dir, "./sdkv1", "./sdkv2"}); err != nil {
		fmt.Fprintln(os.Stderr, "building the Go clients, without which TestClients misses them:", err)
	}
	return testnet.Main(m)
}

func build(dir string, args []string) error {
	cmd := exec.Command("go", append([]string{"build"}, args...)...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	return nil
}

// program is the path of a program that the tests run.
func program(name string) string { return filepath.Join(os.Getenv(programs), name) }

// inEachTopology runs a test with pods on a bridge, and with routed ones.
func inEachTopology(t *testing.T, test func(t *testing.T, topology testnet.Topology)) {
	for _, topology := range testnet.Topologies() {
		t.Run(string(topology), func(t *testing.T) { test(t, topology) })
	}
}
