// Package rig is what the suites of interop are made of: the echo service and
// its order language, clients and servers of every kind, proxies, child
// processes, and checks that everything has been given back.
package rig
