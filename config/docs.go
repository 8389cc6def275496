package config

import (
	"fmt"
	"strings"
)

// Markdown renders the table of options as docs/configuration.md.
func Markdown() string {
	var b strings.Builder
	b.WriteString(`# Configuration of pod2role run

<!-- Made from config/options.go by "make docs"; a test compares. Do not edit. -->

Every option is a flag and an environment variable. The flag wins over the variable, and the variable over the
default. What is wrong is reported all at once, with exit status 2. A list takes several values, separated by commas;
its flag may also be given more than once.
`)
	group := ""
	for _, o := range Options() {
		if o.Group != group {
			group = o.Group
			fmt.Fprintf(&b, "\n## %s\n\n| Flag | Variable | Values | Default | Meaning |\n|---|---|---|---|---|\n", group)
		}
		fmt.Fprintf(&b, "| `--%s` | `%s` | %s | %s | %s |\n", o.Name, o.Env(), o.values(), code(o.Default), cell(o.Usage))
	}
	return b.String()
}

func (o Option) values() string {
	v := cell(o.Values)
	if o.list != "" {
		v += ", list"
	}
	return v
}

func code(v string) string {
	if v == "" {
		return ""
	}
	return "`" + cell(v) + "`"
}

// cell escapes what would end a table's cell.
func cell(v string) string { return strings.ReplaceAll(v, "|", `\|`) }

// Help renders the table of options for a terminal.
func Help() string { return help(Options()) }

// RulesHelp is Help for the options that "pod2role rules" takes.
func RulesHelp() string { return help(ruleOptions(new(Config))) }

func help(table []Option) string {
	var b strings.Builder
	group := ""
	for _, o := range table {
		if o.Group != group {
			group = o.Group
			fmt.Fprintf(&b, "\n%s:\n", group)
		}
		fmt.Fprintf(&b, "  --%s %s", o.Name, o.Values)
		if o.Default != "" {
			fmt.Fprintf(&b, "  (default %s)", o.Default)
		}
		for line := range wrapped(o.Usage, 100) {
			b.WriteString("\n      " + line)
		}
		b.WriteString("\n")
	}
	return b.String()
}

// wrapped yields text in lines of at most width characters, broken between words.
func wrapped(text string, width int) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		line := ""
		for word := range strings.FieldsSeq(text) {
			if line != "" && len(line)+1+len(word) > width {
				if !yield(line) {
					return
				}
				line = ""
			}
			if line != "" {
				line += " "
			}
			line += word
		}
		yield(line)
	}
}
