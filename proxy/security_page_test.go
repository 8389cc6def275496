package proxy

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestTheSecurityPageNamesWhatIsDeniedAndWhatStrictOpens and nothing else.
func TestTheSecurityPageNamesWhatIsDeniedAndWhatStrictOpens(t *testing.T) {
	page, err := os.ReadFile("../docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ heading, file, function string }{
		{"### Never, in any mode and letter case", "secrets.go", "deniedSegment"},
		{"### With `--passthrough=strict`, nothing but", "passthrough.go", "strict"},
	} {
		_, section, found := strings.Cut(string(page), tt.heading+"\n")
		if !found {
			t.Fatalf("the page has no heading %q", tt.heading)
		}
		section, _, _ = strings.Cut(section, "\n### ")
		var named []string
		for line := range strings.SplitSeq(section, "\n") { // each name begins a line of its own
			if name := regexp.MustCompile("^`([a-z0-9/-]+)`").FindStringSubmatch(line); name != nil && !strings.HasPrefix(name[1], "--") {
				named = append(named, name[1])
			}
		}
		slices.Sort(named)
		if diff := cmp.Diff(literals(t, tt.file, tt.function), named); diff != "" {
			t.Errorf("%s (-code +page):\n%s", tt.heading, diff)
		}
	}
}

// literals returns the strings in a function but for separators, sorted.
func literals(t *testing.T, file, function string) []string {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, d := range parsed.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || f.Name.Name != function {
			continue
		}
		ast.Inspect(f.Body, func(n ast.Node) bool {
			if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
				if value, err := strconv.Unquote(lit.Value); err == nil && value != "/" {
					all = append(all, value)
				}
			}
			return true
		})
	}
	slices.Sort(all)
	return all
}
