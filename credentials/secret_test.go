package credentials_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/sirupsen/logrus"

	"pod2role/credentials"
)

func TestSecretsPrintUnderNoVerb(t *testing.T) {
	session := &credentials.Session{
		Key:             credentials.Key{RoleARN: "arn:aws:iam::111122223333:role/reader", ExternalID: "hush-external"},
		SecretAccessKey: "hush-secret", Token: "hush-token",
	}
	session.Document(func(s *credentials.Session) []byte { return []byte(s.SecretAccessKey.Reveal()) })
	values := map[string]any{
		"secret": credentials.Secret("hush"), "secrets": []credentials.Secret{"hush"}, "session": session,
		"sessions": []*credentials.Session{session}, "key": session.Key, "field": struct{ S credentials.Secret }{"hush"},
		"map": map[string]credentials.Secret{"a": "hush"},
	}
	for name, value := range values {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%t", "%e", "%10.3v", "%U", "%c"} {
			got := fmt.Sprintf(verb, value)
			for _, leak := range []string{"hush", fmt.Sprintf("%x", "hush"), fmt.Sprintf("%X", "hush"), fmt.Sprint([]byte("hush"))[1:10]} {
				if strings.Contains(got, leak) {
					t.Errorf("%s with %s: got %q, want no secret", name, verb, got)
				}
			}
		}
	}
	for name, value := range values {
		if name == "key" {
			continue // comparable and convertible, hence of plain strings: it is not marshalled
		}
		got, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(strings.ReplaceAll(string(got), "hush-external", ""), "hush") {
			t.Errorf("%s as JSON: got %s, want no secret", name, got)
		}
	}
	var out bytes.Buffer
	log := logrus.New()
	log.SetOutput(&out)
	log.WithFields(values).Info("a line")
	if strings.Contains(out.String(), "hush") {
		t.Errorf("got log line %s, want no secret", out.String())
	}
}

func TestSecretsAreThereForWhoAsks(t *testing.T) {
	if got := credentials.Secret("hush").Reveal(); got != "hush" {
		t.Errorf("got %q, want the secret", got)
	}
}

func TestDocumentIsRenderedOnce(t *testing.T) {
	session, n := &credentials.Session{}, 0
	for range 3 {
		session.Document(func(*credentials.Session) []byte { n++; return nil })
	}
	if n != 1 {
		t.Errorf("got %d renderings, want 1", n)
	}
}
