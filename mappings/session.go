package mappings

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"text/template"
	"unicode/utf8"
)

// DefaultSessionNameTemplate names the node and not the pod, because the session is shared by all pods of the node
// that use the role.
const DefaultSessionNameTemplate = "pod2role-{{.Node}}"

// STS's limits: https://docs.aws.amazon.com/STS/latest/APIReference/API_AssumeRole.html and API_Tag.html.
const (
	minSessionName, maxSessionName = 2, 64
	maxTagValue                    = 256
)

var (
	sessionNameFormat = regexp.MustCompile(`^[\w+=,.@-]{2,64}$`)
	externalIDFormat  = regexp.MustCompile(`^[\w+=,.@:/-]{2,}$`)
	tagValueFormat    = regexp.MustCompile(`^[\p{L}\p{Z}\p{N}_.:/=+\-@]*$`)
)

// sessionFields is what a session name template may speak of.
type sessionFields struct {
	Namespace, ServiceAccount, Pod, Node, Cluster string
}

// parseSessionName parses a session name template, and tries it out, so that a field that does not exist is found at
// start.
func parseSessionName(text string) (*template.Template, error) {
	if text == "" {
		text = DefaultSessionNameTemplate
	}
	t, err := template.New("session name").Parse(text)
	if err != nil {
		return nil, err
	}
	if _, err := sessionName(t, sessionFields{Namespace: "namespace", ServiceAccount: "default", Pod: "pod", Node: "node", Cluster: "cluster"}); err != nil {
		return nil, err
	}
	return t, nil
}

// sessionName executes t and makes a legal RoleSessionName of the outcome: what is illegal becomes "-", what is too
// long ends in a hash of the whole, what is too short is prefixed.
func sessionName(t *template.Template, fields sessionFields) (string, error) {
	var b strings.Builder
	if err := t.Execute(&b, fields); err != nil {
		return "", err
	}
	whole := b.String()
	name := strings.Map(func(c rune) rune {
		if isNameCharacter(c) {
			return c
		}
		return '-'
	}, whole)
	if len(name) < minSessionName {
		name = "pod2role-" + name
	}
	if len(name) > maxSessionName {
		sum := sha256.Sum256([]byte(whole))
		suffix := "-" + hex.EncodeToString(sum[:5])
		name = name[:maxSessionName-len(suffix)] + suffix
	}
	return name, nil
}

func checkSessionName(name string) error {
	switch {
	case len(name) < minSessionName || len(name) > maxSessionName:
		return fmt.Errorf("it has %d characters, and STS allows %d to %d", len(name), minSessionName, maxSessionName)
	case !sessionNameFormat.MatchString(name):
		return errors.New("STS allows letters, digits and +=,.@_- in a session name")
	}
	return nil
}

// checkExternalID says what is wrong with an external ID, without saying what it is.
func checkExternalID(id string) error {
	const longest = 1224
	switch {
	case len(id) < 2 || len(id) > longest:
		return fmt.Errorf("it has %d characters, and STS allows 2 to %d", len(id), longest)
	case !externalIDFormat.MatchString(id):
		return errors.New("STS allows letters, digits and +=,.@:/_- in an external ID")
	}
	return nil
}

// tag is one session tag, in STS's own spelling.
type tag struct{ Key, Value string }

// sessionTags returns the tags as canonical JSON: sorted by key, those without a value left out.
func sessionTags(fields sessionFields) (string, error) {
	var tags []tag
	for _, t := range []tag{
		{"cluster", fields.Cluster},
		{"namespace", fields.Namespace},
		{"pod", fields.Pod},
		{"service-account", fields.ServiceAccount},
	} {
		if t.Value == "" {
			continue
		}
		if utf8.RuneCountInString(t.Value) > maxTagValue || !tagValueFormat.MatchString(t.Value) {
			return "", fmt.Errorf("the session tag %s cannot be %s: STS allows %d letters, digits, spaces and _.:/=+-@", t.Key, quote(t.Value), maxTagValue)
		}
		tags = append(tags, t)
	}
	if tags == nil {
		return "", nil
	}
	text, err := json.Marshal(tags)
	return string(text), err
}
