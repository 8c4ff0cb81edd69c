// Package process holds the suites of two processes: one is killed in the
// middle of transfers, or both are kept busy in both directions. It has tests
// only.
package process
