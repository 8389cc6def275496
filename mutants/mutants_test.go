package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// module is a small module with a guard, a test of it, and patches of every kind.
var module = map[string]string{
	"go.mod": "module guarded\n\ngo 1.26.0\n",
	"guard/guard.go": `package guard

// Allowed tells whether asked is exactly own.
func Allowed(own, asked string) bool {
	return own == asked
}
`,
	"guard/guard_test.go": `package guard

import "testing"

func TestOnlyTheOwnRole(t *testing.T) {
	if Allowed("a", "b") {
		t.Error("b was allowed to a")
	}
}

func TestTheOwnRole(t *testing.T) {
	if !Allowed("a", "a") {
		t.Error("a was refused to a")
	}
}

func TestElsewhere(t *testing.T) {
	done := make(chan bool)
	go func() {
		if Allowed("a", "b") {
			panic("b was allowed to a")
		}
		close(done)
	}()
	<-done
}

func TestNeedsRoot(t *testing.T) { t.Skip("needs root") }

func TestBroken(t *testing.T) { t.Error("always") }
`,
}

// mutant is a patch of module's guard.
func mutant(header, replacement string) string {
	return header + `
diff --git a/guard/guard.go b/guard/guard.go
--- a/guard/guard.go
+++ b/guard/guard.go
@@ -4,3 +4,3 @@
 func Allowed(own, asked string) bool {
-	return own == asked
+	return ` + replacement + `
 }
`
}

func write(t *testing.T, root string, files map[string]string) {
	t.Helper()
	for name, content := range files {
		file := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func TestWhatBecomesOfAPatch(t *testing.T) {
	root := t.TempDir()
	write(t, root, module)
	write(t, filepath.Join(root, "mutants"), map[string]string{
		"dies.patch":     mutant("# breaks: every role is allowed\n# dies: ./guard TestOnlyTheOwnRole", `own == asked || true`),
		"both.patch":     mutant("# breaks: the comparison is turned round\n# dies: ./guard TestOnlyTheOwnRole\n# dies: ./guard TestTheOwnRole", `own != asked`),
		"crash.patch":    mutant("# breaks: every role is allowed\n# dies: ./guard TestElsewhere", `true`),
		"lives.patch":    mutant("# breaks: nothing\n# dies: ./guard TestOnlyTheOwnRole", `asked == own`),
		"half.patch":     mutant("# breaks: every role is allowed\n# dies: ./guard TestOnlyTheOwnRole\n# dies: ./guard TestTheOwnRole", `own == asked || true`),
		"syntax.patch":   mutant("# breaks: the build\n# dies: ./guard TestOnlyTheOwnRole", `own ==`),
		"moved.patch":    strings.Replace(mutant("# breaks: what is gone\n# dies: ./guard TestOnlyTheOwnRole", `true`), "own == asked", "strings.EqualFold(own, asked)", 1),
		"untested.patch": mutant("# breaks: every role is allowed\n# dies: ./guard TestNoSuch", `true`),
		"skipped.patch":  mutant("# breaks: every role is allowed\n# dies: ./guard TestNeedsRoot", `true`),
		"red.patch":      mutant("# breaks: every role is allowed\n# dies: ./guard TestBroken", `true`),
		"nowhere.patch":  mutant("# breaks: every role is allowed\n# dies: ./gard TestOnlyTheOwnRole", `true`),
	})
	want := map[string]string{
		"dies": "killed", "both": "killed", "crash": "killed", "lives": "SURVIVED", "half": "SURVIVED", "syntax": "BROKEN", "moved": "BROKEN",
		"untested": "BROKEN", "skipped": "not judged", "red": "BROKEN", "nowhere": "BROKEN",
	}
	var out, errs bytes.Buffer
	if code := run(t.Context(), []string{"-root", root, "-race=false", "-parallel=2"}, &out, &errs); code != 1 {
		t.Errorf("exit status %d, want 1: %s", code, &errs)
	}
	for name, outcome := range want {
		if !strings.Contains(out.String(), outcome+strings.Repeat(" ", max(1, 11-len(outcome)))+name+" (") {
			t.Errorf("%s is not said to be %s", name, outcome)
		}
	}
	if want := "FAIL\t11 mutants: 3 killed, 2 survived, 5 broken, 1 not judged in "; !strings.Contains(out.String(), want) {
		t.Errorf("the summary is not %q", want)
	}
	if t.Failed() {
		t.Log(out.String())
	}
	if got, err := os.ReadFile(filepath.Join(root, "guard/guard.go")); err != nil || string(got) != module["guard/guard.go"] {
		t.Errorf("the working tree was changed: %v\n%s", err, got)
	}
}

func TestWhereEveryPatchIsKilledTheCommandSucceeds(t *testing.T) {
	root := t.TempDir()
	write(t, root, module)
	write(t, filepath.Join(root, "mutants"), map[string]string{
		"dies.patch":    mutant("# breaks: every role is allowed\n# dies: ./guard TestOnlyTheOwnRole", `true`),
		"skipped.patch": mutant("# breaks: every role is allowed\n# dies: ./guard TestNeedsRoot", `true`),
	})
	for _, tt := range []struct {
		name string
		args []string
		code int
	}{
		{"one", []string{"-only=dies"}, 0},
		{"a patch that is not judged fails", nil, 1},
		{"unless that is allowed", []string{"-allow-skips"}, 0},
		{"none", []string{"-only=nothing"}, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var out, errs bytes.Buffer
			if code := run(t.Context(), append([]string{"-root", root, "-race=false"}, tt.args...), &out, &errs); code != tt.code {
				t.Errorf("exit status %d, want %d\n%s%s", code, tt.code, &out, &errs)
			}
		})
	}
}

func TestAnExpressionMatchesAsThatOfGoTestDoes(t *testing.T) {
	for _, tt := range []struct {
		run, test string
		want      bool
	}{
		{"TestA", "TestA", true},
		{"TestA", "TestAB", true},
		{"^TestA$", "TestAB", false},
		{"TestA", "TestA/sub", true},
		{"TestA/sub", "TestA", false},
		{"TestA/sub", "TestA/a_subtest", true},
		{"TestA/other", "TestA/a_subtest", false},
		{"TestA/x|TestB/y", "TestB/y", true},
		{"TestA/x|TestB/y", "TestB/x", false},
		{"Test(A|B)/y", "TestB/y", true},
		{"Test[/|]/y", "Test|/y", true},
	} {
		if got := matches(tt.run, tt.test); got != tt.want {
			t.Errorf("%q runs %q: %v, want %v", tt.run, tt.test, got, tt.want)
		}
	}
}

func TestAHeaderSaysWhatBreaksAndWhatDies(t *testing.T) {
	const diff = "diff --git a/x b/x\n"
	for _, tt := range []struct{ name, content, want string }{
		{"good", "# breaks: a\n# dies: ./p TestA\n" + diff, ""},
		{"plain diff", "# breaks: a\n# dies: ./p TestA\n--- a/x\n", ""},
		{"no breaks", "# dies: ./p TestA\n" + diff, "no line says `# breaks: …`"},
		{"no dies", "# breaks: a\n" + diff, "no line says `# dies: ./PACKAGE TESTS`"},
		{"no diff", "# breaks: a\n# dies: ./p TestA\n", "there is no diff"},
		{"no package", "# breaks: a\n# dies: TestA\n" + diff, "\"# dies: TestA\" is not `# dies: ./PACKAGE TESTS`"},
		{"bad expression", "# breaks: a\n# dies: ./p Test(\n" + diff, "\"# dies: ./p Test(\": error parsing regexp: missing closing ): `Test(`"},
		{"prose", "# breaks: a\nand more\n" + diff, "\"and more\" stands before the diff and is neither `# breaks:` nor `# dies:`"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := parse(tt.content)
			got := ""
			if err != nil {
				got = err.Error()
			}
			if got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}
