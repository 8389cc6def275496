//go:build race

package e2e_test

// raceFlags build the daemon as the tests were built.
func raceFlags() []string { return []string{"-race"} }
