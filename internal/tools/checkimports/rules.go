package main

import "strings"

const modulePath = "github.com/gdrpc/gdrpc"

// group is a part of the module that has a place in the order of imports. A
// package belongs to the group with the longest matching path.
type group struct {
	path string // relative to the module; "." is the root package alone
	// level orders the groups: a package imports its own group and groups of
	// lower levels, never another group of its own level.
	level int
	heavy bool // may import any module
}

var groups = []group{
	{path: "internal/leak", level: -1},
	{path: "internal/skip", level: -1},
	{path: "internal/events", level: 0},
	{path: "internal/hangup", level: 0},
	{path: "internal/ipc", level: 1},
	{path: "internal/testpb", level: 0},
	{path: "internal/tools", level: 0},
	{path: "internal/sysfs", level: 0},
	{path: "ibverbs", level: 1},
	{path: "gpubuf", level: 1},
	{path: "internal/topology", level: 1},
	{path: "conn", level: 2},
	{path: "internal/handshake", level: 3},
	{path: "dialer", level: 4},
	{path: "listener", level: 4},
	{path: ".", level: 5},
	{path: "internal/nvml", level: 6, heavy: true}, // above the library, which must not import it
	{path: "interop", level: 7, heavy: true},
	{path: "examples", level: 7, heavy: true},
	{path: "cmd", level: 7, heavy: true},
}

// light lists the modules that the library itself may import. Whoever uses it
// gets these and no others.
var light = []string{
	"golang.org/x/sys",
	"google.golang.org/grpc",
	"google.golang.org/protobuf",
}

// lightTest lists what tests may import beyond that.
var lightTest = []string{
	"github.com/stretchr/testify",
	"go.uber.org/goleak",
	"golang.org/x/net",
}

// groupOf finds the group of an import path of this module.
func groupOf(path string) (group, bool) {
	rel := strings.TrimPrefix(strings.TrimPrefix(path, modulePath), "/")
	if rel == "" {
		rel = "."
	}
	var best group
	for _, g := range groups {
		if within(rel, g.path) && len(g.path) > len(best.path) {
			best = g
		}
	}
	return best, best.path != ""
}

// within reports whether path is dir or lies below it.
func within(path, dir string) bool {
	return path == dir || strings.HasPrefix(path, dir+"/")
}

func withinAny(path string, dirs []string) bool {
	for _, d := range dirs {
		if within(path, d) {
			return true
		}
	}
	return false
}
