// Package cli is the command line: a file for each subcommand.
//
// run.go holds the only function that assembles the daemon; `run`, `demo` and the end-to-end tests share it. Nobody
// but main imports cli. Commands return an exit status: 0 when all is well, 1 when something failed, 2 when the command
// line or the configuration was wrong.
package cli
