package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestQuantileIsTheNearestRank(t *testing.T) {
	hundred := make([]int, 100)
	for i := range hundred {
		hundred[i] = 100 - i
	}
	for _, tt := range []struct {
		name   string
		values []int
		q      float64
		want   int
	}{
		{"nothing", nil, .5, 0},
		{"one", []int{7}, .99, 7},
		{"median of three", []int{3, 1, 2}, .5, 2},
		{"median of four", []int{4, 3, 2, 1}, .5, 2},
		{"least", hundred, 0, 1},
		{"99th of a hundred", hundred, .99, 99},
		{"greatest", hundred, 1, 100},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := quantile(tt.values, tt.q); got != tt.want {
				t.Errorf("got %d, want %d", got, tt.want)
			}
		})
	}
}

func TestRoundsAreComparedInPairs(t *testing.T) {
	// The machine was twice as slow in the second pair: that is no difference between the two.
	got := ratios([]float64{12, 24, 5}, []float64{10, 20, 0, 10})
	if diff := cmp.Diff([]float64{1.2, 1.2}, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if got := spread([]float64{4, 1, 2, 3}); got != "2.00 (1.00 to 3.00)" {
		t.Errorf("got %q", got)
	}
}

func TestATableIsMarkdown(t *testing.T) {
	table := table{columns: []string{"what", "µs"}, note: "a note"}
	table.add("role", "12")
	want := "| what | µs |\n|------|----|\n| role | 12 |\n\na note\n"
	if diff := cmp.Diff(want, table.String()); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestOnlyTheFiguresOfAScenarioAreReplaced(t *testing.T) {
	page := "# Page\n<!-- figures of warm -->\nold\n<!-- end of figures -->\ntext\n<!-- figures of slow -->\nold\n<!-- end of figures -->\n"
	got, err := replace(page, "slow", "new\n")
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Replace(page, "<!-- figures of slow -->\nold\n", "<!-- figures of slow -->\n\nnew\n\n", 1)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if _, err := replace(page, "storm", "new"); err == nil {
		t.Error("figures were put where there is no place for them")
	}
}

func TestEveryScenarioHasItsPlaceOnThePage(t *testing.T) {
	for _, s := range scenarios() {
		if err := rewriteCopy(t, s.name); err != nil {
			t.Error(err)
		}
	}
}

func TestSizesAreReadAsTheKernelWritesThem(t *testing.T) {
	const status = "Name:\tpod2role\nVmRSS:\t   49164 kB\nRssAnon:\t   12000 kB\nThreads:\t9\n"
	var total, own, file uint64
	if err := readSizes([]byte(status), map[string]*uint64{"VmRSS": &total, "RssAnon": &own}); err != nil || total != 49164<<10 || own != 12000<<10 {
		t.Errorf("got %d, %d, %v", total, own, err)
	}
	if err := readSizes([]byte(status), map[string]*uint64{"RssFile": &file}); err == nil {
		t.Error("a size that is not there was read")
	}
}

func TestARoleHasItsTurnWhenThoseBeforeItHadTheirs(t *testing.T) {
	turn := turn(20, 20)
	for n, want := range map[int]time.Duration{0: 1900 * time.Millisecond, 19: 1900 * time.Millisecond, 20: 1950 * time.Millisecond, 199: 10900 * time.Millisecond} {
		if got := turn(n); got != want {
			t.Errorf("role %d: got %s, want %s", n, got, want)
		}
	}
}

// rewriteCopy puts figures into a copy of the page.
func rewriteCopy(t *testing.T, name string) error {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "docs", "performance.md"))
	if err != nil {
		return err
	}
	_, err = replace(string(text), name, "new")
	return err
}
