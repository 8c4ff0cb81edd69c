package gpu

import (
	"fmt"
	"testing"

	"github.com/gdrpc/gdrpc/conn"
	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/gpubuf/cuda"
	"github.com/gdrpc/gdrpc/internal/skip"
	"github.com/gdrpc/gdrpc/interop/internal/rig"
	"github.com/stretchr/testify/require"
)

// TestPeerGPU sends attachments between processes on two GPUs of one machine:
// straight from one to the other where they reach each other's memory.
func TestPeerGPU(t *testing.T) {
	gpus, err := cuda.List(nil)
	if err == nil && len(gpus) < 2 {
		err = fmt.Errorf("%d GPU is there", len(gpus))
	}
	if err != nil {
		skip.Missing(t, "cuda2", err, "run it on a machine with two NVIDIA GPUs that reach each other's memory")
	}
	server, addr := startServer(t, serverPart{Kind: second})
	defer server.Stop(t)
	t.Run(string(real), func(t *testing.T) {
		_, pool := real.pool(t, gpubuf.Config{})
		for _, path := range []conn.Path{conn.PathSoft, conn.PathIPC} {
			t.Run(path.String(), func(t *testing.T) {
				c := dial(t, addr, pool, path, false)
				defer c.Close()
				for i, n := range real.sizes() {
					require.NoError(t, c.call(rig.Context(t), rig.Payload{Size: n, Seed: uint64(i)}, order{}), "%d bytes", n)
				}
			})
		}
	})
}
