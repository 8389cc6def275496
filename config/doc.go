// Package config turns command-line flags and POD2ROLE_* environment variables into one validated [Config].
//
// One table of options (options.go) is the only home of every option: its flag, its environment variable, its default,
// its help text and its row in docs/configuration.md all come from there. [Parse] reads everything, then reports every
// problem at once, each with the option's name and what to do. Only the command line (package cli) imports config.
package config
