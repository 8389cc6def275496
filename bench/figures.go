package main

import (
	"cmp"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"time"
)

// table is what a scenario found, for people.
type table struct {
	title   string
	columns []string
	rows    [][]string
	note    string // what a reader has to know of it
}

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

// String renders the table in Markdown that can be read as it is.
func (t table) String() string {
	widths := make([]int, len(t.columns))
	for _, row := range append([][]string{t.columns}, t.rows...) {
		for i, cell := range row {
			widths[i] = max(widths[i], len([]rune(cell)))
		}
	}
	var b strings.Builder
	line := func(cells []string) {
		for i, cell := range cells {
			fmt.Fprintf(&b, "| %-*s ", widths[i], cell)
		}
		b.WriteString("|\n")
	}
	if t.title != "" {
		b.WriteString(t.title + "\n\n")
	}
	line(t.columns)
	for _, width := range widths {
		b.WriteString("|" + strings.Repeat("-", width+2))
	}
	b.WriteString("|\n")
	for _, row := range t.rows {
		line(row)
	}
	if t.note != "" {
		b.WriteString("\n" + t.note + "\n")
	}
	return b.String()
}

// figuresOf is a scenario's whole report.
func figuresOf(s scenario, tables []table, machine, before, after string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "`make bench ARGS=%s` on %s, %s; load average %s before and %s after.\n",
		s.name, time.Now().UTC().Format(time.DateOnly), machine, before, after)
	for _, t := range tables {
		b.WriteString("\n" + t.String())
	}
	return b.String()
}

// rewrite replaces the figures of a scenario on a page, which stand between two comments.
func rewrite(page, name, figures string) error {
	old, err := os.ReadFile(page)
	if err != nil {
		return fmt.Errorf("writing the figures: %w", err)
	}
	replaced, err := replace(string(old), name, figures)
	if err != nil {
		return fmt.Errorf("writing the figures into %q: %w", page, err)
	}
	if err := os.WriteFile(page, []byte(replaced), 0o644); err != nil {
		return fmt.Errorf("writing the figures: %w", err)
	}
	return nil
}

func replace(text, name, figures string) (string, error) {
	begin, end := "<!-- figures of "+name+" -->\n", "<!-- end of figures -->"
	before, rest, found := strings.Cut(text, begin)
	_, after, ended := strings.Cut(rest, end)
	if !found || !ended {
		return "", fmt.Errorf("there are no lines %q and %q", strings.TrimSpace(begin), end)
	}
	return before + begin + "\n" + strings.TrimSpace(figures) + "\n\n" + end + after, nil
}

// quantile returns the value below or at which the fraction q of all values lies (the nearest rank), the zero value of
// none.
func quantile[T cmp.Ordered](values []T, q float64) T {
	var zero T
	if len(values) == 0 {
		return zero
	}
	sorted := slices.Sorted(slices.Values(values))
	rank := int(math.Ceil(q * float64(len(sorted))))
	return sorted[min(max(rank, 1), len(sorted))-1]
}

// ratios compares two series round by round: the two rounds of a pair saw the same machine.
func ratios(subject, reference []float64) []float64 {
	var all []float64
	for i := range min(len(subject), len(reference)) {
		if reference[i] > 0 {
			all = append(all, subject[i]/reference[i])
		}
	}
	return all
}

// spread writes a median with the quartiles beside it.
func spread(values []float64) string {
	if len(values) == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f (%.2f to %.2f)", quantile(values, .5), quantile(values, .25), quantile(values, .75))
}

func median(values []float64) string { return fmt.Sprintf("%.0f", quantile(values, .5)) }

// seconds and millis write durations.
func seconds(d time.Duration) string { return fmt.Sprintf("%.2f s", d.Seconds()) }

func millis(d time.Duration) string {
	return fmt.Sprintf("%.1f ms", float64(d)/float64(time.Millisecond))
}

// mebibytes writes a number of bytes.
func mebibytes[T int | int64 | uint64 | float64](n T) string {
	return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
}
