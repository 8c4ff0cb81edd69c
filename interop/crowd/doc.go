// Package crowd holds the suites in which thousands of sockets that lead
// nowhere meet one listener, while a good client goes on. It has tests only.
package crowd
