package main

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/gdrpc/gdrpc/conn"
	"github.com/gdrpc/gdrpc/ibverbs"
	"github.com/gdrpc/gdrpc/internal/skip"
	"github.com/gdrpc/gdrpc/listener"
	"github.com/stretchr/testify/require"
)

// TestVerbs looks at the RDMA devices of this machine through libibverbs.
func TestVerbs(t *testing.T) {
	r, d := requireRDMA(t)
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

// requireRDMA returns the report on this machine and the first device in it that
// can be used, or skips the test.
func requireRDMA(t *testing.T) (*report, rdmaDevice) {
	t.Helper()
	s := thisMachine()
	s.best = conn.PathGDR
	r, err := collect(s)
	require.NoError(t, err)
	i := slices.IndexFunc(r.RDMA.Devices, func(d rdmaDevice) bool { return d.Usable.State == yes })
	if r.RDMA.Library.State != yes || i < 0 {
		skip.Missing(t, "verbs", errors.New(r.RDMA.Library.String()), "it wants libibverbs and a device with an ACTIVE port; rdma_rxe will do: make test-rxe")
	}
	return r, r.RDMA.Devices[i]
}

// TestVerbsServer asks a server that has the RDMA devices of this machine.
func TestVerbsServer(t *testing.T) {
	_, d := requireRDMA(t)
	p := d.Ports[d.Port-1]
	i := slices.IndexFunc(p.GIDs, func(g gid) bool { return g.Index == p.GID && g.Type == ibverbs.GIDTypeRoCEv2.String() })
	if i < 0 {
		skip.Missing(t, "roce", fmt.Errorf("%s has none", d.Name), "it wants a device with a RoCE v2 address")
	}
	nics, err := verbsDevices()
	require.NoError(t, err)
	address := netip.MustParseAddr(p.GIDs[i].Address).Unmap()
	l, err := listener.Listen("tcp", netip.AddrPortFrom(address, 0).String(), &listener.Config{
		Conn: conn.Config{NICs: nics, Logger: slog.New(slog.DiscardHandler)}, HandshakeTimeout: 20 * time.Second,
	})
	require.NoError(t, err)
	code, stdout, stderr := run(t, thisMachine(), nil, "-timeout", "60s", serve(t, l))
	require.Equal(t, exitOK, code, stderr)
	require.Regexp(t, `(?m)^  mode +verbs$`, stdout)
	require.Regexp(t, `(?m)^  best path +gdr$`, stdout)
	require.Regexp(t, `(?m)^  provider +verbs$`, stdout)
}
