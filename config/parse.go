package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// Options returns the table of options, for documentation. The rows cannot be used to set anything.
func Options() []Option { return options(new(Config)) }

// flagSet returns the options as flags.
func flagSet(table []Option) *pflag.FlagSet {
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	fs.SortFlags = false
	fs.Usage = func() {}
	for _, o := range table {
		f := fs.VarPF(&raw{option: o}, o.Name, "", o.Usage)
		if o.bool {
			f.NoOptDefVal = "true"
		}
	}
	return fs
}

// Became says what to do about a flag of a program that this one replaces, as the end of a sentence; false: it is none.
type Became func(flag string) (advice string, ok bool)

// Problems is what is wrong with a configuration: one sentence for each mistake.
type Problems []string

// Error implements error: one line for each problem.
func (p Problems) Error() string { return strings.Join(p, "\n") }

// Parse makes a Config from the arguments behind the command and from environ, whose entries read NAME=value. A flag
// wins over its environment variable, which wins over the default. What is wrong is returned all at once, as
// [Problems]; pflag.ErrHelp is returned for --help. became may be nil. Each of checks is asked last for the problems that
// only another package can see, such as a role that cannot be read.
func Parse(args, environ []string, became Became, checks ...func(Config) []string) (Config, error) {
	var c Config
	set, problems, err := parse(options(&c), args, environ, became)
	if err != nil {
		return Config{}, err
	}
	problems = append(problems, c.check(set)...)
	for _, check := range checks {
		problems = append(problems, check(c)...)
	}
	if len(problems) > 0 {
		return Config{}, problems
	}
	return c, nil
}

// ParseRules is Parse for "pod2role rules", which takes the options that say what the rules are, and no other. Only
// these fields of the Config are set. The environment may well hold the daemon's other options.
func ParseRules(args, environ []string) (Config, error) {
	var c Config
	_, problems, err := parse(ruleOptions(&c), args, environ, nil)
	if err != nil {
		return Config{}, err
	}
	if problems = append(problems, c.checkRules()...); len(problems) > 0 {
		return Config{}, problems
	}
	return c, nil
}

// ruleOptions returns the rows of the table that "pod2role rules" takes, bound to c.
func ruleOptions(c *Config) []Option {
	return slices.DeleteFunc(options(c), func(o Option) bool { return !o.rules })
}

// parse sets the rows of a table, and returns what is wrong with single options and arguments. set tells which options
// somebody has set. The error is pflag.ErrHelp or nil.
func parse(table []Option, args, environ []string, became Became) (set func(name string) bool, problems Problems, err error) {
	args, unknown := knownOnly(table, args, became)
	problems = append(problems, unknown...)

	fs := flagSet(table)
	if err := fs.Parse(args); errors.Is(err, pflag.ErrHelp) {
		return nil, nil, err
	} else if err != nil {
		problems = append(problems, err.Error())
	}
	for _, arg := range fs.Args() {
		problems = append(problems, fmt.Sprintf("%q is not a flag: every setting is given as --name=value", arg))
	}

	for _, o := range table {
		given, from := fs.Lookup(o.Name).Value.(*raw).values, "--"+o.Name
		if given == nil {
			if value, ok := lookup(environ, o.Env()); ok {
				given, from = []string{value}, o.Env()
			}
		}
		if given == nil && o.Default == "" {
			continue
		}
		if given == nil {
			given = []string{o.Default}
		}
		for _, value := range o.split(given) {
			if err := o.set(value); err != nil {
				problems = append(problems, fmt.Sprintf("%s=%q %v", from, value, err))
			}
		}
	}
	return given(fs, environ), problems, nil
}

// split gives a list option its elements; an empty value is the empty list.
func (o Option) split(given []string) []string {
	if o.list == "" {
		return given[len(given)-1:]
	}
	var all []string
	for _, value := range given {
		for element := range strings.SplitSeq(value, o.list) {
			if element = strings.TrimSpace(element); element != "" {
				all = append(all, element)
			}
		}
	}
	return all
}

// raw is the pflag.Value of every option: it keeps the text, so that one mistake does not hide the next.
type raw struct {
	option Option
	values []string
}

func (r *raw) String() string     { return r.option.Default }
func (r *raw) Type() string       { return r.option.Values }
func (r *raw) Set(v string) error { r.values = append(r.values, v); return nil }

// knownOnly takes flags that do not exist out of args, with a sentence for each, because pflag would stop at the first.
func knownOnly(table []Option, args []string, became Became) (known []string, problems []string) {
	names := make(map[string]Option)
	for _, o := range table {
		names[o.Name] = o
	}
	for i := 0; i < len(args); i++ {
		arg := args[i]
		if arg == "--" {
			return append(known, args[i:]...), problems
		}
		name, _, hasValue := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
		if !strings.HasPrefix(arg, "--") || name == "help" {
			known = append(known, arg)
			continue
		}
		o, ok := names[name]
		if !ok {
			problems = append(problems, fmt.Sprintf("--%s is not a flag of pod2role%s", name, advice(name, names, became)))
			continue
		}
		known = append(known, arg)
		if !hasValue && !o.bool && i+1 < len(args) {
			i++
			known = append(known, args[i])
		}
	}
	return known, problems
}

// advice tells what to do about a flag that does not exist: what became of a predecessor's flag, or the nearest name.
func advice(name string, names map[string]Option, became Became) string {
	if became != nil {
		if advice, ok := became(name); ok {
			return "; " + advice
		}
	}
	best, distance := "", 4
	for known := range names {
		if d := editDistance(name, known); d < distance || d == distance && known < best {
			best, distance = known, d
		}
	}
	if best == "" {
		return "; --help lists them all"
	}
	return "; did you mean --" + best + "?"
}

// given tells which options somebody has set, by flag or variable.
func given(fs *pflag.FlagSet, environ []string) func(name string) bool {
	return func(name string) bool {
		if fs.Lookup(name).Value.(*raw).values != nil {
			return true
		}
		_, ok := lookup(environ, envName(name))
		return ok
	}
}

func envName(flag string) string {
	return "POD2ROLE_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

func lookup(environ []string, name string) (value string, ok bool) {
	i := slices.IndexFunc(environ, func(e string) bool { return strings.HasPrefix(e, name+"=") })
	if i < 0 {
		return "", false
	}
	return environ[i][len(name)+1:], true
}

// editDistance is Levenshtein's distance between two short ASCII names.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
