// Package charts holds the Helm chart, and the tests that tie its values to the daemon's options.
package charts
