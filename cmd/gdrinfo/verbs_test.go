package main

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/gdrpc/gdrpc/conn"
	"github.com/stretchr/testify/require"
)

// TestVerbs looks at the RDMA devices of this machine through libibverbs.
func TestVerbs(t *testing.T) {
	s := thisMachine()
	s.best = conn.PathGDR
	r, err := collect(s)
	require.NoError(t, err)
	i := slices.IndexFunc(r.RDMA.Devices, func(d rdmaDevice) bool { return d.Usable.State == yes })
	if r.RDMA.Library.State != yes || i < 0 {
		missing(t, "verbs", errors.New(r.RDMA.Library.String()), "it wants libibverbs and a device with an ACTIVE port; rdma_rxe will do: make test-rxe")
	}
	d := r.RDMA.Devices[i]
	t.Logf("%+v", d)
	require.Equal(t, yes, d.Opens.State, d.Opens)
	require.NotEqual(t, unknown, d.DMABuf.State, d.DMABuf)
	p := d.Ports[d.Port-1]
	require.Equal(t, "ACTIVE", p.State)
	require.Positive(t, p.MTU)
	require.True(t, slices.ContainsFunc(p.GIDs, func(g gid) bool { return g.Index == p.GID }) || p.LID > 0)
	j := slices.IndexFunc(r.Paths, func(e pathEntry) bool { return e.Memory == hostMemory && e.NIC == d.Name })
	if r.Memory.Memlock.State == yes {
		require.Equal(t, "gdr", r.Paths[j].Path, r.Paths[j])
	}
}

// missing skips the test because a requirement is missing, and says how to meet
// it; it fails the test if GDR_TEST_REQUIRE, a list with commas, names the
// requirement.
func missing(t testing.TB, requirement string, err error, fix string) {
	t.Helper()
	const skip = "%s is missing: %v; %s"
	if slices.Contains(strings.Split(os.Getenv("GDR_TEST_REQUIRE"), ","), requirement) {
		t.Fatalf(skip, requirement, err, fix)
	}
	t.Skipf(skip, requirement, err, fix)
}
