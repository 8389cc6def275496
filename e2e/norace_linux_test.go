//go:build !race

package e2e_test

func raceFlags() []string { return nil }
