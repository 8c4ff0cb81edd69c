// Package interop holds the suites that cross every kind of client with every
// kind of server over real sockets. It has tests only; README.md has the
// matrix, and how to run what is skipped by default.
package interop
