package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/gdrpc/gdrpc/conn"
	"github.com/gdrpc/gdrpc/interop/rxe/internal/plan"
)

// suites is what `make test-rxe` runs; soak is how long connections are kept
// busy.
func suites(soak time.Duration) []*step {
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
		{name: "rdma", pkg: "interop/rdma", tests: true, limit: 7 * time.Minute},
		kills(conn.PathGDR, 12),
		kills(conn.PathRDMAStaged, 8),
		full(conn.PathGDR, soak),
		whole("ending", "interop/ending", conn.PathGDR, "-test.run", "^Test(GracefulStop|ServerEnds|CloseLanding)"),
		quickstart(conn.PathGDR),
		quickstart(conn.PathRDMAStaged),
		// What gdrinfo says of a device that is there, and of a server that has it.
		{name: "gdrinfo", pkg: "cmd/gdrinfo", tests: true, args: []string{"-test.run", "TestVerbs"}, limit: time.Minute},
	}
}

// whole is tests of whole connections whose attachments take path.
func whole(name, pkg string, path conn.Path, args ...string) *step {
	return &step{
		name: name + "/" + path.String(), pkg: pkg, tests: true, args: args,
		env: []string{"GDR_TEST_PATH=" + path.String()}, limit: 3 * time.Minute,
	}
}

// kills has n client processes killed in the middle of transfers, and n servers.
func kills(path conn.Path, n int) *step {
	s := whole("kill", "interop/process", path, "-test.run", "^TestKill")
	s.env = append(s.env, fmt.Sprint("GDR_TEST_KILLS=", n))
	return s
}

// full keeps all windows full for so long.
func full(path conn.Path, soak time.Duration) *step {
	s := whole("full", "interop/process", path, "-test.run", "^TestFull$")
	s.env = append(s.env, fmt.Sprint("GDR_TEST_FULL=", soak))
	s.limit += soak
	return s
}

// quickstart sends a file of the guest, a small one.
func quickstart(path conn.Path) *step {
	return &step{
		name: "quickstart/" + path.String(), pkg: "examples/quickstart", limit: time.Minute,
		args: []string{"-path", path.String(), "-listen", plan.Address + ":0", "-rounds", "1", "/usr/bin/ip"},
	}
}
