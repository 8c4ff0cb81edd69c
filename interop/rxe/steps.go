package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/gdrpc/gdrpc/interop/rxe/internal/plan"
)

// suites is what `make test-rxe` runs.
func suites() []*step {
	gid := fmt.Sprint(plan.GIDIndex)
	// With events: two programs that poll leave no core of two to the device.
	pingpong := []string{"ibv_rc_pingpong", "-e", "-d", plan.Device, "-g", gid}
	return []*step{
		// Without a line of this project: what fails here is not its fault.
		{name: "pingpong", args: append(slices.Clone(pingpong), plan.Address), server: pingpong, port: 18515, limit: time.Minute},
		{
			name: "ibverbs/verbs", pkg: "ibverbs/verbs", tests: true, limit: 3 * time.Minute,
			mayskip: []string{"TestConformance/MessageTooBig"}, // rdma_rxe does not refuse it
		},
		{name: "rdma", pkg: "interop/rdma", tests: true, limit: 5 * time.Minute},
		// What gdrinfo says of a device that is there.
		{name: "gdrinfo", pkg: "cmd/gdrinfo", tests: true, args: []string{"-test.run", "TestVerbs"}, limit: time.Minute},
	}
}
