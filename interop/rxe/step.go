package main

import (
	"path"
	"slices"
	"strings"
	"time"

	"github.com/gdrpc/gdrpc/interop/rxe/internal/plan"
)

// step is one thing to do in the guest: a program of the host, or a package's
// tests or program.
type step struct {
	name   string
	pkg    string        // folder in the module; empty: a program of the host
	tests  bool          // the package's tests, rather than its program
	args   []string      // for a program of the host its name comes first
	server []string      // a program of the host that runs beside it, with arguments
	port   int           // that server listens on
	cm     bool          // port is one of the RDMA connection manager, not of TCP
	env    []string      // beside the guest's own
	limit  time.Duration // of its run in the guest, under software emulation
	// mayskip names the tests that may be skipped, each with a reason in a
	// comment. Any other skipped test fails its step.
	mayskip []string
	figure  *figure // that its output has; nil: none

	// What compile finds out.
	binary string // the package's program or test binary
	dir    string // the package's folder
}

// guestBinary is where the binary lies in the guest.
func (s *step) guestBinary() string {
	name := strings.ReplaceAll(s.pkg, "/", "-")
	if s.tests {
		name += ".test"
	}
	return "/usr/libexec/" + name
}

// guestDir is the step's working directory in the guest. Tests find their
// testdata there.
func (s *step) guestDir() string { return path.Join("/work", s.pkg) }

// plan is what the guest is told.
func (s *step) plan() plan.Step {
	p := plan.Step{Name: s.name, Dir: "/tmp", Env: s.env, Limit: s.limit, Port: s.port, CM: s.cm}
	switch {
	case s.pkg == "":
		p.Argv = inGuest(s.args)
	case s.tests:
		p.Dir = s.guestDir()
		p.Argv = append([]string{s.guestBinary(), "-test.v", "-test.timeout=" + s.limit.String()}, s.args...)
	default:
		p.Argv = append([]string{s.guestBinary()}, s.args...)
	}
	if len(s.server) > 0 {
		p.Server = inGuest(s.server)
	}
	return p
}

// inGuest is the command of a program of the host.
func inGuest(argv []string) []string {
	return append([]string{"/usr/bin/" + argv[0]}, argv[1:]...)
}

// guestPrograms lists the programs of the host that steps run.
func guestPrograms(steps []*step) (names []string) {
	for _, s := range steps {
		if s.pkg == "" {
			names = append(names, s.args[0])
		}
		if len(s.server) > 0 {
			names = append(names, s.server[0])
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
