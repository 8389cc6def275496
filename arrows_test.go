package main

import (
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// This file is the architecture's page that cannot go stale. It states policy: do not change a row to make a build
// pass; change it because the architecture changed, in a commit of its own, with the reason in docs/decisions.
//
// The left side is a package, ours or another's, with all below it; of several rows that fit, the longest counts. The
// right side is who may import it: a folder with all below it, or a pattern of path.Match for files.
// Whatever is not in the table may not be imported at all, so a new room and a new dependency each need a row. Always
// allowed are Go's own packages, except those in the last group, and a folder's own package to its tests.

// Two words of the right side stand for what is no folder.
const (
	everyone = ""      // a package that binds nobody to anything
	tests    = "tests" // test files, and what e2e and bench hold, which is nothing else
)

var arrows = map[string][]string{
	// The rooms. Only the demo reaches the sandbox, and `run` never. A room's tests get what the room
	// gets, and the sandbox; a test that needs more belongs into e2e.
	"pod2role":             nil,
	"pod2role/cli":         {"main.go", "e2e", "bench"},
	"pod2role/config":      {"cli", "charts/*_test.go", "e2e", "bench"},
	"pod2role/proxy":       {"cli", "e2e", "bench"},
	"pod2role/mappings":    {"cli", "proxy", "identity", "cluster", "migrate", "e2e", "bench"},
	"pod2role/identity":    {"cli", "e2e", "bench"},
	"pod2role/cluster":     {"cli", "e2e", "bench"},
	"pod2role/credentials": {"cli", "proxy", "e2e", "bench"},
	"pod2role/iptables":    {"cli", "e2e", "bench"},
	"pod2role/handover":    {"cli", "e2e", "bench"},
	"pod2role/cni":         {"cli", "e2e", "bench"},
	"pod2role/attest":      {"cli", "e2e", "bench"},
	"pod2role/debug":       {"cli", "e2e", "bench"},
	"pod2role/migrate":     {"cli", "e2e", "bench"},
	"pod2role/sandbox":     {"cli/demo*.go", "sandbox", tests},
	"pod2role/e2e":         {tests},
	"pod2role/bench":       nil,
	"pod2role/charts":      nil,
	"pod2role/mutants":     nil,

	// Kubernetes.
	"k8s.io/api":                     {"cluster", "sandbox/kubeapi", "migrate", "cli/demo*.go", tests},
	"k8s.io/apimachinery":            {"cluster", "sandbox/kubeapi", "migrate", "cli/demo*.go", tests},
	"k8s.io/client-go":               {"cluster", tests},
	"k8s.io/klog/v2":                 {"cli/log.go"}, // it is process-wide, so that only the assembly may turn it
	"gopkg.in/evanphx/json-patch.v4": {"sandbox/kubeapi"},
	"sigs.k8s.io/yaml":               {"cli", "migrate", "sandbox/kubeapi", tests},

	// AWS.
	"github.com/aws": {"credentials", tests},

	// The kernel.
	"github.com/google/nftables":     {"iptables", tests},
	"github.com/mdlayher/netlink":    {"iptables", tests},
	"github.com/coreos/go-iptables":  {"iptables", tests},
	"github.com/vishvananda/netlink": {"iptables", "attest", tests},
	"github.com/vishvananda/netns":   {tests},
	"github.com/fsnotify/fsnotify":   {"cni"},
	"golang.org/x/sys":               {everyone},

	// The daemon's own faces.
	"github.com/gorilla/mux":     {"proxy", "debug"},
	"github.com/spf13/cobra":     {"cli"},
	"github.com/spf13/pflag":     {"cli", "config"},
	"github.com/go-logr/logr":    {"cli/log.go"},
	"github.com/prometheus":      {everyone},
	"github.com/sirupsen/logrus": {everyone},
	"golang.org/x/sync":          {everyone},
	"golang.org/x/time":          {everyone},
	"github.com/google/go-cmp":   {tests},

	// Of Go's own packages, those that not every room may use.
	"testing":        {tests},
	"net/http/pprof": {"debug"}, // importing it registers handlers process-wide
	"os/exec":        {"iptables", "mutants", tests},
	"plugin":         nil,
	"unsafe":         {"attest", "iptables", tests}, // socket options that nobody wraps
}

// without :: room -> what it may not import although everyone may. Deciding is pure: no I/O, no log, no metrics.
var without = map[string][]string{
	"mappings": {
		"os", "io/fs", "io/ioutil", "net", "net/http", "log", "syscall", "database/sql",
		"github.com/sirupsen/logrus", "github.com/prometheus", "golang.org/x/sys",
	},
}

// source is one Go file, with what matters of it here.
type source struct {
	path    string // from the root, with slashes
	imports []string
	doc     bool // a package comment
}

func TestTheArrowsHold(t *testing.T) {
	for _, s := range sources(t) {
		for _, imported := range s.imports {
			if problem := judge(s.path, imported); problem != "" {
				t.Error(problem)
			}
		}
	}
}

func TestEveryFolderIsARoomOfTheTable(t *testing.T) {
	for _, s := range sources(t) {
		if row, _ := rowOf(ours(path.Dir(s.path))); row == "" || (row == "pod2role" && path.Dir(s.path) != ".") {
			t.Errorf("%s: no row of the table is for this folder", s.path)
		}
	}
}

func TestEveryPackageSaysInItsDocFileWhatItIsFor(t *testing.T) {
	documented := map[string]bool{} // :: folder -> has a doc.go with a package comment
	for _, s := range sources(t) {
		dir, name := path.Split(s.path)
		documented[dir] = documented[dir] || (name == "doc.go" && s.doc) || s.path == "main.go"
		if s.doc && name != "doc.go" && s.path != "main.go" {
			t.Errorf("%s: the package comment belongs into doc.go", s.path)
		}
	}
	for dir, ok := range documented {
		if !ok {
			t.Errorf("%s has no doc.go with a package comment", dir)
		}
	}
}

func TestWhatTheTableRefuses(t *testing.T) {
	for _, tt := range []struct {
		file, imports string
		allowed       bool
	}{
		{"main.go", "pod2role/cli", true},
		{"main.go", "pod2role/config", false},
		{"config/parse.go", "pod2role/cli", false},
		{"proxy/proxy.go", "pod2role/cluster", false},
		{"proxy/proxy.go", "pod2role/iptables", false},
		{"proxy/proxy.go", "k8s.io/client-go/kubernetes", false},
		{"proxy/proxy.go", "github.com/aws/aws-sdk-go-v2/aws", false},
		{"proxy/proxy.go", "pod2role/mappings", true},
		{"mappings/decide.go", "pod2role/identity", false},
		{"mappings/decide.go", "net/http", false},
		{"mappings/decide.go", "net/netip", true},
		{"mappings/decide.go", "os", false},
		{"mappings/decide.go", "github.com/sirupsen/logrus", false},
		{"iptables/rules.go", "pod2role/mappings", false},
		{"cli/run.go", "pod2role/sandbox/sts", false},
		{"cli/demo.go", "pod2role/sandbox/sts", true},
		{"cli/demo_pods.go", "pod2role/sandbox", true},
		{"cli/run_test.go", "pod2role/sandbox/sts", true},
		{"cli/run.go", "pod2role/e2e/testnet", false},
		{"proxy/proxy_test.go", "pod2role/cluster", false},
		{"mappings/decide_test.go", "os", true},
		{"cli/log.go", "k8s.io/klog/v2", true},
		{"cli/run.go", "k8s.io/klog/v2", false},
		{"sandbox/sts/server.go", "testing", false},
		{"sandbox/sts/server_test.go", "testing", true},
		{"cluster/cluster.go", "github.com/stretchr/testify", false},
		{"cluster/cluster.go", "github.com/awslabs/smithy", false},
		{"debug/debug.go", "C", false},
	} {
		t.Run(tt.file+" imports "+tt.imports, func(t *testing.T) {
			if problem := judge(tt.file, tt.imports); (problem == "") != tt.allowed {
				t.Errorf("allowed = %v, want %v: %s", problem == "", tt.allowed, problem)
			}
		})
	}
}

// judge says what is wrong with a file's import, or nothing.
func judge(file, imported string) string {
	if imported == ours(path.Dir(file)) {
		return "" // a folder's tests import what they test
	}
	room, _, _ := strings.Cut(file, "/")
	for _, forbidden := range without[room] {
		if isTest(file) {
			break
		}
		// A forbidden package of Go's own stands for itself: net/netip opens no socket.
		if imported == forbidden || (strings.Contains(forbidden, ".") && under(imported, forbidden)) {
			return fmt.Sprintf("%s: %s may not import %s", file, room, imported)
		}
	}
	row, importers := rowOf(imported)
	switch first, _, _ := strings.Cut(imported, "/"); {
	case row == "" && !strings.Contains(first, ".") && first != "C":
		return "" // Go's own
	case row == "":
		return fmt.Sprintf("%s: %s is not in the table, so that nobody may import it", file, imported)
	}
	for _, place := range importers {
		matched, _ := path.Match(place, file)
		if matched || under(file, place) || (place == tests && isTest(file)) {
			return ""
		}
	}
	return fmt.Sprintf("%s: may not import %s; the table allows it only to %q", file, imported, importers)
}

// rowOf returns the most specific row for a package.
func rowOf(imported string) (row string, importers []string) {
	for pkg, by := range arrows {
		if under(imported, pkg) && len(pkg) > len(row) {
			row, importers = pkg, by
		}
	}
	return row, importers
}

// isTest tells whether a file is never part of the program.
func isTest(file string) bool {
	return strings.HasSuffix(file, "_test.go") || under(file, "e2e") || under(file, "bench")
}

// under tells whether a path is dir or lies below it.
func under(p, dir string) bool {
	return dir == "" || p == dir || strings.HasPrefix(p, dir+"/")
}

// ours is the import path of a folder.
func ours(dir string) string { return path.Join("pod2role", dir) }

// sources parses every Go file of the module, those for other systems included.
func sources(t *testing.T) []source {
	t.Helper()
	var all []source
	root := os.DirFS(".")
	err := fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			_, err := fs.Stat(root, path.Join(name, "go.mod"))
			if name != "." && (err == nil || strings.HasPrefix(d.Name(), ".") || slices.Contains([]string{"testdata", "node_modules"}, d.Name())) {
				return fs.SkipDir // another module's, or nobody's
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") {
			return nil
		}
		content, err := fs.ReadFile(root, name)
		if err != nil {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, content, parser.ImportsOnly|parser.ParseComments)
		if err != nil {
			return err
		}
		s := source{path: name, doc: file.Doc != nil}
		for _, i := range file.Imports {
			imported, err := strconv.Unquote(i.Path.Value)
			if err != nil {
				return err
			}
			s.imports = append(s.imports, imported)
		}
		all = append(all, s)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 10 {
		t.Fatalf("only %d Go files were found: this test must run in the module's root", len(all))
	}
	return all
}
