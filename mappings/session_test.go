package mappings

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestSessionNames(t *testing.T) {
	keys := DefaultKeys()
	longPod := strings.Repeat("p", 253)
	for _, tt := range []struct {
		name, template, pod, annotation string
		want                            string // with a * at its end: a prefix of 64 characters
	}{
		{"the node's by default", "", "web", "", "pod2role-node-1"},
		{"of all fields", "{{.Namespace}}.{{.ServiceAccount}}.{{.Pod}}.{{.Node}}.{{.Cluster}}", "web", "", "shop.default.web.node-1.main"},
		{"what is illegal becomes a dash", "{{.Namespace}}/{{.Pod}}:é x", "web", "", "shop-web---x"},
		{"what is too short gets a prefix", "{{if eq .Pod \"web\"}}x{{else}}long{{end}}", "web", "", "pod2role-x"},
		{"so does nothing", "{{if ne .Pod \"web\"}}long{{end}}", "web", "", "pod2role-"},
		{"what is too long ends in a hash", "{{.Pod}}", longPod, "", strings.Repeat("p", 53) + "-*"},
		{"the pod's own", "", "web", "billing", "billing"},
		{"the pod's own is trimmed", "", "web", " billing\n", "billing"},
		{"the pod's own of white space is none", "", "web", " ", "pod2role-node-1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := newDecider(t, Rules{SessionNameTemplate: tt.template, Cluster: "main"})
			p := pod(map[string]string{keys.Role: "reader", keys.SessionName: tt.annotation})
			p.Name = tt.pod
			got := d.Decide(p, &Namespace{Name: "shop"}).Session.Name
			prefix, long := strings.CutSuffix(tt.want, "*")
			if !strings.HasPrefix(got, prefix) || !long && got != prefix || long && len(got) != 64 {
				t.Errorf("session name %q, want %q", got, tt.want)
			}
			if !sessionNameFormat.MatchString(got) {
				t.Errorf("STS would refuse the session name %q", got)
			}
		})
	}
}

func TestLongSessionNamesThatDifferStayDifferent(t *testing.T) {
	template, err := parseSessionName("{{.Pod}}")
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, end := range []string{"", "a", "b", "/"} {
		name, err := sessionName(template, sessionFields{Pod: strings.Repeat("p", 100) + end})
		if err != nil || names[name] {
			t.Errorf("%q, %v", name, err)
		}
		names[name] = true
	}
}

func TestMalformedSessionsAreRefused(t *testing.T) {
	keys := DefaultKeys()
	for _, tt := range []struct {
		name, key, value string
		ok               bool
	}{
		{"a session name of one character", keys.SessionName, "x", false},
		{"a session name of 64", keys.SessionName, strings.Repeat("x", 64), true},
		{"a session name of 65", keys.SessionName, strings.Repeat("x", 65), false},
		{"a session name with a slash", keys.SessionName, "a/b", false},
		{"an external ID of one character", keys.ExternalID, "?", false},
		{"an external ID of two", keys.ExternalID, "xy", true},
		{"an external ID of 1224", keys.ExternalID, strings.Repeat("x", 1224), true},
		{"an external ID of 1225", keys.ExternalID, strings.Repeat("x", 1225), false},
		{"an external ID of all characters", keys.ExternalID, `aZ9_+=,.@:\/-`, false},
		{"an external ID of all characters that STS allows", keys.ExternalID, `aZ9_+=,.@:/-`, true},
		{"an external ID with a space", keys.ExternalID, "hush hush", false},
		{"an external ID with white space around it", keys.ExternalID, "hush-hush\n", true},
		{"an external ID that is empty is none", keys.ExternalID, "", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := newDecider(t, Rules{}).Decide(pod(map[string]string{keys.Role: "reader", tt.key: tt.value}), &Namespace{Name: "shop"})
			want := Malformed
			if tt.ok {
				want = Allowed
			}
			if got.Verdict != want {
				t.Errorf("verdict %v, want %v: %s", got.Verdict, want, got.Reason)
			}
			if tt.key == keys.ExternalID && tt.value != "" {
				text, err := json.Marshal(struct {
					Reason string
					Trail  []Step
				}{got.Reason, got.Trail})
				if err != nil {
					t.Fatal(err)
				}
				if strings.Contains(string(text), strings.TrimSpace(tt.value)) {
					t.Errorf("the external ID is shown: %s", text)
				}
			}
		})
	}
}

func TestSessionTags(t *testing.T) {
	keys := DefaultKeys()
	p := pod(map[string]string{keys.Role: "reader"})
	for _, tt := range []struct {
		name    string
		rules   Rules
		account string
		want    string
		verdict Verdict
	}{
		{"off", Rules{Cluster: "main"}, "default", "", Allowed},
		{"on", Rules{SessionTags: true, Cluster: "main"}, "default", `[{"Key":"cluster","Value":"main"},{"Key":"namespace","Value":"shop"},{"Key":"pod","Value":"web"},{"Key":"service-account","Value":"default"}]`, Allowed},
		{"what is not known is left out", Rules{SessionTags: true}, "", `[{"Key":"namespace","Value":"shop"},{"Key":"pod","Value":"web"}]`, Allowed},
		{"what STS would refuse is refused", Rules{SessionTags: true}, "a;b", "", Malformed},
		{"so is what is too long", Rules{SessionTags: true}, strings.Repeat("x", 257), "", Malformed},
	} {
		t.Run(tt.name, func(t *testing.T) {
			q := *p
			q.ServiceAccount = tt.account
			got := newDecider(t, tt.rules).Decide(&q, &Namespace{Name: "shop"})
			if got.Session.Tags != tt.want || got.Verdict != tt.verdict {
				t.Errorf("%v with tags %s, want %v with %s", got.Verdict, got.Session.Tags, tt.verdict, tt.want)
			}
		})
	}
}

func FuzzSessionName(f *testing.F) {
	f.Add("web", "shop")
	f.Add("", "")
	f.Add(strings.Repeat("é", 100), "\xff")
	template, err := parseSessionName("{{.Namespace}}@{{.Pod}}")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, podName, namespace string) {
		name, err := sessionName(template, sessionFields{Pod: podName, Namespace: namespace})
		if err != nil || !sessionNameFormat.MatchString(name) {
			t.Errorf("sessionName(%q, %q) = %q, %v", podName, namespace, name, err)
		}
	})
}
