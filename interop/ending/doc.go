// Package ending holds the suites in which a connection or a side ends in order
// while landings and replies are under way. It has tests only.
package ending
