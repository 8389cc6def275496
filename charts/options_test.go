package charts

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"pod2role/config"
)

// fixed are the options that the chart itself gives, or that make no sense in a pod.
var fixed = []string{"node", "kubeconfig"}

func options() []string {
	var names []string
	for _, o := range config.Options() {
		names = append(names, o.Name)
	}
	slices.Sort(names)
	return names
}

func read(t *testing.T, name string) []byte {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("pod2role", name))
	if err != nil {
		t.Fatal(err)
	}
	return content
}

func TestTheChartTakesEveryOptionOfTheDaemonAndNoOther(t *testing.T) {
	var schema struct {
		Properties struct {
			Options struct {
				AdditionalProperties *bool
				Properties           map[string]any
			}
		}
	}
	if err := json.Unmarshal(read(t, "values.schema.json"), &schema); err != nil {
		t.Fatal(err)
	}
	got := schema.Properties.Options
	if got.AdditionalProperties == nil || *got.AdditionalProperties {
		t.Error("the schema lets unknown options through")
	}
	for _, name := range options() {
		if _, ok := got.Properties[name]; ok == slices.Contains(fixed, name) {
			t.Errorf("the option %s in the schema: %v", name, ok)
		}
		delete(got.Properties, name)
	}
	for name := range got.Properties {
		t.Errorf("the schema takes %s, which the daemon does not know", name)
	}
}

func TestTheValuesNameOnlyOptionsOfTheDaemon(t *testing.T) {
	values := read(t, "values.yaml")
	var parsed struct{ Options map[string]any }
	if err := yaml.Unmarshal(values, &parsed); err != nil {
		t.Fatal(err)
	}
	if len(parsed.Options) == 0 {
		t.Error("values.yaml has no options")
	}
	known := options()
	for name := range parsed.Options {
		if !slices.Contains(known, name) {
			t.Errorf("values.yaml sets %s, which the daemon does not know", name)
		}
	}
	for _, found := range regexp.MustCompile(`(?m)^  # ([a-z0-9-]+): `).FindAllSubmatch(values, -1) {
		if !slices.Contains(known, string(found[1])) {
			t.Errorf("a comment in values.yaml suggests %s, which the daemon does not know", found[1])
		}
	}
}

func TestTheDirectoriesThatAreMountedAreThoseThatTheDaemonReads(t *testing.T) {
	var parsed struct {
		Options struct {
			Dirs []string `json:"cni-results-dir"`
		}
	}
	if err := yaml.Unmarshal(read(t, "values.yaml"), &parsed); err != nil {
		t.Fatal(err)
	}
	all := config.Options()
	n := slices.IndexFunc(all, func(o config.Option) bool { return o.Name == "cni-results-dir" })
	if diff := cmp.Diff(strings.Split(all[n].Default, ","), parsed.Options.Dirs); diff != "" {
		t.Errorf("the daemon's default and the chart's differ (-daemon +chart):\n%s", diff)
	}
}
