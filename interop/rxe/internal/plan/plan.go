// Package plan is what the host and the guest of interop/rxe say to each other:
// the host puts a Plan into the guest's file system, the guest writes Events,
// one JSON object on each line, to its second serial port.
package plan

import "time"

// Path is where the guest finds its plan.
const Path = "/plan.json"

// The emulated device of the guest, and the address of the network device
// below it.
const (
	Device  = "rxe0"
	Address = "10.8.0.1"
	// GIDIndex is the device's RoCE v2 GID made of Address. Index 0 is of the
	// link-local address.
	GIDIndex = 1
)

// Plan is everything that one boot does.
type Plan struct {
	Modules []string // kernel modules, as paths in the guest, in the order of loading
	Steps   []Step   // in their order
}

// Step is one command of the guest.
type Step struct {
	Name   string
	Dir    string        // its working directory
	Argv   []string      // the program by its path, and its arguments
	Env    []string      // beside the guest's own
	Limit  time.Duration // then it gets SIGQUIT, and SIGKILL 10 s later
	Server []string      // runs beside the command, from before its start until its end; may be empty
	Port   int           // that Server listens on before the command starts
	CM     bool          // Port is one of the RDMA connection manager, not of TCP
}

// Event is one thing that happened in the guest. One of its pointers is set.
type Event struct {
	Up   *Up
	Line *Line
	End  *End
}

// Up says that the device is up, or that it is not. It is the first event.
type Up struct {
	Error  string // empty: the device is ACTIVE
	Device string // a line that describes it
}

// Line is a line of a step's output.
type Line struct{ Step, Text string }

// End is the end of a step.
type End struct {
	Step  string
	Error string // empty: exit status 0 within the limit
	Took  time.Duration
}
