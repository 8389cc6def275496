package mappings

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"
)

func TestRestrictions(t *testing.T) {
	const other = "arn:aws:iam::222222222222:role/"
	allowed, permitted := DefaultKeys().AllowedRoles, DefaultKeys().Permitted
	for _, tt := range []struct {
		name        string
		format      Format
		annotations map[string]string
		role        string
		want        Verdict
		reason      string // a part of it
	}{
		{"nothing is allowed where nothing is said", Glob, nil, "reader", Forbidden, `'iam.amazonaws.com/allowed-roles=["` + base + `reader"]'`},
		{"the remedy of the regexp format is a regexp", Regexp, nil, "a.b+c", Forbidden, `role/a\\.b\\+c"]'`},

		{"glob: a name", Glob, map[string]string{allowed: `["reader"]`}, "reader", Allowed, ""},
		{"glob: another name", Glob, map[string]string{allowed: `["reader"]`}, "writer", Forbidden, allowed},
		{"glob: a longer name", Glob, map[string]string{allowed: `["reader"]`}, "reader-admin", Forbidden, ""},
		{"glob: the second element", Glob, map[string]string{allowed: `["x", "reader"]`}, "reader", Allowed, ""},
		{"glob: a star", Glob, map[string]string{allowed: `["team-*"]`}, "team-a", Allowed, ""},
		{"glob: a star stands for nothing as well", Glob, map[string]string{allowed: `["team-*"]`}, "team-", Allowed, ""},
		{"glob: a star crosses slashes, as kube2iam's does", Glob, map[string]string{allowed: `["team/*"]`}, "team/a/b", Allowed, ""},
		{"glob: two stars", Glob, map[string]string{allowed: `["*-a-*"]`}, "x-a-y", Allowed, ""},
		{"glob: two stars, not there", Glob, map[string]string{allowed: `["*-a-*"]`}, "x-b-y", Forbidden, ""},
		{"glob: a star's ends do not overlap", Glob, map[string]string{allowed: `["aba*ba"]`}, "aba", Forbidden, ""},
		{"glob: everything of the base account", Glob, map[string]string{allowed: `["*"]`}, "a/b", Allowed, ""},
		{"glob: nothing of another account", Glob, map[string]string{allowed: `["*"]`}, other + "x", Forbidden, ""},
		{"glob: an ARN", Glob, map[string]string{allowed: `["` + other + `x*"]`}, other + "xy", Allowed, ""},
		{"glob: an ARN for a name", Glob, map[string]string{allowed: `["` + base + `reader"]`}, "/reader", Allowed, ""},
		{"glob: a question mark is itself", Glob, map[string]string{allowed: `["reade?"]`}, "reader", Forbidden, ""},
		{"glob: a dot is itself", Glob, map[string]string{allowed: `["r.ader"]`}, "reader", Forbidden, ""},

		{"regexp: a name", Regexp, map[string]string{allowed: `["team-.*"]`}, "team-a", Allowed, ""},
		{"kube2iam's unanchored regexp: a longer name", Regexp, map[string]string{allowed: `["role-a"]`}, "role-a-admin", Forbidden, ""},
		{"kube2iam's unanchored regexp: text before the name", Regexp, map[string]string{allowed: `["role-a"]`}, "x-role-a", Forbidden, ""},
		{"kube2iam's foreign account that contains the text", Regexp, map[string]string{allowed: `["role-a"]`}, other + "x/role-a", Forbidden, ""},
		{"kube2iam's unescaped base ARN", Regexp, map[string]string{allowed: `["."]`}, "xy", Forbidden, ""},
		{"kube2iam's regexps that cannot be anchored (issue 341)", Regexp, map[string]string{allowed: `["^` + base + `role-a$"]`}, "role-a", Allowed, ""},
		{"a name with anchors of its own", Regexp, map[string]string{allowed: `["^role-a$|^role-b$"]`}, "role-b", Allowed, ""},
		{"regexp: alternation does not escape the anchors", Regexp, map[string]string{allowed: `["foo|bar"]`}, "xbar", Forbidden, ""},
		{"regexp: both sides of an alternation are allowed", Regexp, map[string]string{allowed: `["foo|bar"]`}, "bar", Allowed, ""},
		{"regexp: brackets do not escape the anchors", Regexp, map[string]string{allowed: `["a)|(?:.*"]`}, "zzz", Forbidden, "element 1"},
		{"regexp: a flag stays within", Regexp, map[string]string{allowed: `["(?m)a$"]`}, "a", Allowed, ""},
		{"regexp: everything under the base ARN", Regexp, map[string]string{allowed: `[".*"]`}, other + "x", Forbidden, ""},
		{"regexp: a glob is no regexp", Regexp, map[string]string{allowed: `["*"]`}, "reader", Forbidden, "element 1"},

		{"kube2iam's malformed array", Glob, map[string]string{allowed: `["reader", 1]`}, "reader", Forbidden, "element 2 is \"1\", not a string"},
		{"kube2iam's malformed array of regexps", Regexp, map[string]string{allowed: `["nothing", 1]`}, "reader", Forbidden, "element 2"},
		{"one bad regexp makes all void", Regexp, map[string]string{allowed: `["reader", "("]`}, "reader", Forbidden, "element 2"},
		{`kube2iam's [""] as regexps`, Regexp, map[string]string{allowed: `[""]`}, "reader", Forbidden, ""},
		{`[""] as globs`, Glob, map[string]string{allowed: `[""]`}, "reader", Forbidden, ""},
		{"an empty element leaves the others", Glob, map[string]string{allowed: `["", "reader"]`}, "reader", Allowed, ""},
		{"no element", Glob, map[string]string{allowed: `[]`}, "reader", Forbidden, ""},
		{"null", Glob, map[string]string{allowed: `null`}, "reader", Forbidden, "null"},
		{"an element that is null", Regexp, map[string]string{allowed: `[null]`}, "reader", Forbidden, "element 1"},
		{"an empty annotation", Glob, map[string]string{allowed: ``}, "reader", Forbidden, "not a JSON array"},
		{"a string", Glob, map[string]string{allowed: `"*"`}, "reader", Forbidden, "not a JSON array"},
		{"an object", Glob, map[string]string{allowed: `{"a":"*"}`}, "reader", Forbidden, "not a JSON array"},
		{"an array in an array", Glob, map[string]string{allowed: `[["*"]]`}, "reader", Forbidden, "element 1"},
		{"something after the array", Glob, map[string]string{allowed: `["*"] ["*"]`}, "reader", Forbidden, "not a JSON array"},
		{"not JSON", Glob, map[string]string{allowed: `reader`}, "reader", Forbidden, "not a JSON array"},

		{"permitted: an ARN", Glob, map[string]string{permitted: base + "reader"}, "reader", Allowed, ""},
		{"permitted: any account, by a name", Glob, map[string]string{permitted: `.*:role/reader`}, other + "reader", Allowed, ""},
		{"permitted: a name is no ARN, since Kiam v4", Glob, map[string]string{permitted: "reader"}, "reader", Forbidden, permitted},
		{"permitted: anchored already", Glob, map[string]string{permitted: "^" + base + "reader$"}, "reader", Allowed, ""},
		{"Kiam's foo|bar alternation", Glob, map[string]string{permitted: base + "foo|bar"}, other + "xbar", Forbidden, ""},
		{"Kiam's alternation before the anchor", Glob, map[string]string{permitted: base + `team-a-.*|` + base + `shared`}, base + "evil", Forbidden, ""},
		{"Kiam's *.*, which permitted everything", Glob, map[string]string{permitted: `*.*`}, "reader", Forbidden, "not a regexp"},
		{"permitted: brackets do not escape the anchors", Glob, map[string]string{permitted: `a)|(?:.*`}, "reader", Forbidden, "not a regexp"},
		{"permitted: an open quotation does not escape the anchors", Glob, map[string]string{permitted: `.*\Q`}, "reader", Forbidden, "not a regexp"},
		{"permitted: empty", Glob, map[string]string{permitted: ``}, "reader", Forbidden, ""},
		{"permitted: bad", Glob, map[string]string{permitted: `(`}, "reader", Forbidden, "not a regexp"},

		{"both, and both allow", Glob, map[string]string{allowed: `["reader"]`, permitted: ".*"}, "reader", Allowed, ""},
		{"both, and allowed-roles does not", Glob, map[string]string{allowed: `["writer"]`, permitted: ".*"}, "reader", Forbidden, allowed},
		{"both, and permitted does not", Glob, map[string]string{allowed: `["*"]`, permitted: base + "writer"}, "reader", Forbidden, permitted},
		{"both, and permitted is empty", Glob, map[string]string{allowed: `["*"]`, permitted: ""}, "reader", Forbidden, permitted},
		{"both, and allowed-roles is malformed", Glob, map[string]string{allowed: `["*"`, permitted: ".*"}, "reader", Forbidden, allowed},
		{"both, and permitted is malformed", Glob, map[string]string{allowed: `["*"]`, permitted: "("}, "reader", Forbidden, permitted},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := newDecider(t, Rules{NamespaceRestrictions: true, Format: tt.format})
			got := d.Decide(pod(map[string]string{DefaultKeys().Role: tt.role}), &Namespace{Name: "shop", Annotations: tt.annotations})
			if got.Verdict != tt.want || !strings.Contains(got.Reason, tt.reason) {
				t.Errorf("verdict %v, want %v; the reason should say %q: %s", got.Verdict, tt.want, tt.reason, got.Reason)
			}
			if (got.Session.RoleARN != "") != (tt.want == Allowed) {
				t.Errorf("a %v decision names the role %q", got.Verdict, got.Session.RoleARN)
			}
		})
	}
}

func TestGlobIsARegexpOfStars(t *testing.T) {
	alphabet := []string{"", "a", "b", "*", "a*", "*a", "ab", "a*b", "**", "*a*b*", "a*a", "ba*ab"}
	subjects := []string{"", "a", "b", "ab", "ba", "aab", "abab", "baab", "bab", "a/b", "\n"}
	for _, pattern := range alphabet {
		re := regexp.MustCompile(`(?s)^` + strings.ReplaceAll(regexp.QuoteMeta(pattern), `\*`, `.*`) + `$`)
		for _, s := range subjects {
			if got, want := glob(pattern, s), re.MatchString(s); got != want {
				t.Errorf("glob(%q, %q) = %v, want %v", pattern, s, got, want)
			}
		}
	}
}

// What the namespace says may be anything: it never makes Decide panic, and never allows a role of which it does not
// hold at least one pattern.
func FuzzRestrictions(f *testing.F) {
	for _, seed := range []string{`["reader"]`, `["*"]`, `[""]`, `["a)|(?:.*"]`, `[1]`, `null`, `*.*`, `foo|bar`, `.*\Q`, `(?i)x`, "arn:aws:iam::123456789012:role/.*"} {
		f.Add(seed, false)
		f.Add(seed, true)
	}
	f.Fuzz(func(t *testing.T, value string, isRegexp bool) {
		format := Glob
		if isRegexp {
			format = Regexp
		}
		d := newDecider(t, Rules{NamespaceRestrictions: true, Format: format})
		p := pod(map[string]string{DefaultKeys().Role: "reader"})

		var patterns []string
		ok := json.Unmarshal([]byte(value), &patterns) == nil && strings.TrimSpace(strings.Join(patterns, "")) != ""
		got := d.Decide(p, &Namespace{Name: "shop", Annotations: map[string]string{DefaultKeys().AllowedRoles: value}})
		if got.Verdict == Allowed && !ok {
			t.Errorf("allowed-roles %q allows a role", value)
		}
		got = d.Decide(p, &Namespace{Name: "shop", Annotations: map[string]string{DefaultKeys().Permitted: value}})
		if got.Verdict != Allowed {
			return
		}
		re, err := regexp.Compile(value)
		if err != nil {
			t.Fatalf("permitted %q is no regexp and allows a role", value)
		}
		re.Longest()
		if whole := base + "reader"; re.FindString(whole) != whole {
			t.Errorf("permitted %q matches only a part of %q and allows it", value, whole)
		}
	})
}
