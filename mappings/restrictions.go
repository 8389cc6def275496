package mappings

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// Format is how the patterns of the allowed-roles annotation are written.
type Format string

// The formats of kube2iam. A glob's only wildcard is *, which stands for any text, slashes included. A regexp is RE2,
// and must match all of the name or ARN.
const (
	Glob   Format = "glob"
	Regexp Format = "regexp"
)

// restriction is one of the two annotations with which a namespace allows roles, compiled.
type restriction struct {
	key      string
	value    string
	err      error // why it cannot be read: it then allows nothing
	patterns []pattern
}

// pattern allows the roles that it matches.
type pattern struct {
	full  bool // it speaks of the whole ARN, not of the name under the base ARN
	match func(string) bool
}

// restrictions compiles the annotations of ns that restrict roles: those that are there, at most two.
func restrictions(ns *Namespace, keys Keys, format Format) []*restriction {
	var rs []*restriction
	if value, ok := ns.Annotations[keys.AllowedRoles]; ok {
		r := &restriction{key: keys.AllowedRoles, value: value}
		r.patterns, r.err = parseAllowedRoles(value, format)
		rs = append(rs, r)
	}
	if value, ok := ns.Annotations[keys.Permitted]; ok {
		r := &restriction{key: keys.Permitted, value: value}
		r.patterns, r.err = parsePermitted(value)
		rs = append(rs, r)
	}
	return rs
}

// parseAllowedRoles reads kube2iam's annotation. One element that is not a pattern makes all of it void: an annotation
// that was misread must not allow more than was meant.
func parseAllowedRoles(value string, format Format) ([]pattern, error) {
	var elements []json.RawMessage
	if err := json.Unmarshal([]byte(value), &elements); err != nil {
		return nil, fmt.Errorf("it is not a JSON array of strings: %w", err)
	}
	if elements == nil { // JSON's null
		return nil, errors.New("it is not a JSON array of strings: it is null")
	}
	patterns := make([]pattern, 0, len(elements))
	for i, element := range elements {
		var text *string
		if err := json.Unmarshal(element, &text); err != nil || text == nil {
			return nil, fmt.Errorf("element %d is %s, not a string", i+1, quote(string(element)))
		}
		p, err := compile(*text, format)
		if err != nil {
			return nil, fmt.Errorf("element %d: %w", i+1, err)
		}
		patterns = append(patterns, p)
	}
	return patterns, nil
}

// parsePermitted reads Kiam's annotation with the meaning it has since Kiam v4: a regexp over the whole ARN.
func parsePermitted(value string) ([]pattern, error) {
	if value == "" {
		return []pattern{{full: true, match: never}}, nil
	}
	match, err := compileRegexp(value)
	if err != nil {
		return nil, err
	}
	return []pattern{{full: true, match: match}}, nil
}

// never is the empty pattern's match. It names no role; in kube2iam the empty regexp allowed every role of the account.
func never(string) bool { return false }

// compile compiles one element of allowed-roles. kube2iam puts the base ARN before a pattern that does not begin with
// "arn:"; to match what follows the base ARN is the same, and lets such a regexp carry anchors of its own
// (https://github.com/jtblin/kube2iam/issues/341).
func compile(text string, format Format) (pattern, error) {
	if text == "" {
		return pattern{match: never}, nil
	}
	if format != Regexp {
		return pattern{full: strings.HasPrefix(text, "arn:"), match: func(s string) bool { return glob(text, s) }}, nil
	}
	match, err := compileRegexp(text)
	return pattern{full: strings.HasPrefix(strings.TrimPrefix(text, "^"), "arn:"), match: match}, err
}

// compileRegexp compiles expr so that it must match all of its subject.
func compileRegexp(expr string) (func(string) bool, error) {
	// Alone first: `a)|(?:.*` is no regexp, but between our brackets it would be one, without the anchors.
	if _, err := regexp.Compile(expr); err != nil {
		return nil, fmt.Errorf("%s is not a regexp: %w", quote(expr), err)
	}
	re, err := regexp.Compile(`^(?:` + expr + `)$`)
	if err != nil {
		return nil, fmt.Errorf("%s is not a regexp: %w", quote(expr), err)
	}
	return re.MatchString, nil
}

// glob says whether s as a whole is what pattern describes, in which * stands for any text.
func glob(pattern, s string) bool {
	parts := strings.Split(pattern, "*")
	if len(parts) == 1 {
		return s == pattern
	}
	s, ok := strings.CutPrefix(s, parts[0])
	if !ok {
		return false
	}
	last := len(parts) - 1
	for _, part := range parts[1:last] {
		i := strings.Index(s, part)
		if i < 0 {
			return false
		}
		s = s[i+len(part):]
	}
	return strings.HasSuffix(s, parts[last])
}

// allows says which pattern, counted from one, allows the role; 0: none. unsure means that a pattern could not be
// judged because the base ARN is not known.
func (r *restriction) allows(arn, base string) (element int, unsure bool) {
	if r.err != nil {
		return 0, false
	}
	short, under := "", false
	if base != "" {
		short, under = strings.CutPrefix(arn, base)
	}
	for i, p := range r.patterns {
		switch {
		case p.full && p.match(arn), under && !p.full && p.match(short):
			return i + 1, false
		case !p.full && base == "":
			unsure = true
		}
	}
	return 0, unsure
}
