package handshake

import (
	"fmt"

	"github.com/gdrpc/gdrpc/conn"
)

// Step says what a dialogue is doing, in words that fit an error: "reading the
// server's Hello".
type Step string

// Hook is called before each step; an error makes the step fail. It is for
// tests, which learn the steps from a run that succeeds. Several goroutines
// call it.
type Hook func(Step) error

func (h Hook) at(s Step) error {
	if h == nil {
		return nil
	}
	return h(s)
}

// forLane is a step of one lane: "making the control lane".
func forLane(format string, ref laneRef) Step { return Step(fmt.Sprintf(format, ref)) }

// forShared is making one of the lanes of mode soft-shared.
func forShared(kind conn.LaneKind) Step {
	return Step(fmt.Sprintf("making the shared %v lane", kind))
}

// The steps that are no message.
const (
	stepMakeLane     = "making the %v lane"
	stepDialLane     = "dialling the %v lane's socket"
	stepDialDirect   = "dialling the %v lane's socket at the advertised address"
	stepAttachLane   = "attaching the %v lane"
	stepAttachShared = Step("attaching the shared lanes")
	stepInvite       = Step("preparing the Unix socket")
	stepRelease      = Step("returning the connection")

	stepOpenVerbs    = Step("opening the lanes of mode verbs")
	stepConnectVerbs = Step("connecting the lanes of mode verbs")
	stepSendReady    = Step("sending Ready on the lanes of mode verbs")
	stepAwaitReady   = Step("awaiting Ready on the lanes of mode verbs")
)
