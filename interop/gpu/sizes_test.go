package gpu

import (
	"fmt"
	"testing"

	"github.com/gdrpc/gdrpc/conn"
	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/interop/internal/rig"
	"github.com/stretchr/testify/require"
)

// sizes are around every boundary that there is: of what NICs scatter by CPU,
// of pages, of what goes inside the message, of staging blocks.
func (k kind) sizes() []int64 {
	return []int64{
		0, 1, 255, 256, 257, 4095, 4096, 4097, 16 << 10, 16<<10 + 1, 64<<10 - 1, 64 << 10, 64<<10 + 1, 1<<20 + 3, k.most(),
	}
}

// serverPart is what a server process has to do.
type serverPart struct {
	Kind      kind
	Checksums bool
}

func playServer(t *testing.T, parent *rig.Parent) {
	var p serverPart
	parent.Arg(t, &p)
	_, pool := p.Kind.pool(t, gpubuf.Config{})
	parent.Say(t, serve(t, &service{pool: pool}, conn.Config{Checksums: p.Checksums}, listen(t)))
	<-parent.Gone
}

// startServer starts a server process with a GPU of its own opening.
func startServer(t *testing.T, p serverPart) (child *rig.Child, addr string) {
	t.Helper()
	child = rig.Start(t, "server", p)
	child.Hear(t, &addr)
	return child, addr
}

// TestSizes sends attachments of every size there and back, at odd addresses, by
// calls and streams, over each path, within one process and between two.
func TestSizes(t *testing.T) {
	onEach(t, func(t *testing.T, k kind) {
		for _, processes := range []int{1, 2} {
			for _, checksums := range []bool{false, true} {
				name := fmt.Sprintf("%d processes", processes)
				if checksums {
					name += ", checksums"
				}
				t.Run(name, func(t *testing.T) { testSizes(t, k, processes, checksums) })
			}
		}
	})
}

func testSizes(t *testing.T, k kind, processes int, checksums bool) {
	_, pool := k.pool(t, gpubuf.Config{})
	var addr string
	if processes == 1 {
		_, other := k.pool(t, gpubuf.Config{})
		addr = serve(t, &service{pool: other}, conn.Config{Checksums: checksums}, listen(t))
	} else {
		var server *rig.Child
		server, addr = startServer(t, serverPart{k, checksums})
		defer server.Stop(t)
	}
	paths := []conn.Path{conn.PathSoft}
	if k.shares(processes) {
		paths = append(paths, conn.PathIPC)
	}
	for _, path := range paths {
		t.Run(path.String(), func(t *testing.T) {
			c := dial(t, addr, pool, path, checksums)
			defer c.Close()
			var list []rig.Payload
			for i, n := range k.sizes() {
				p := rig.Payload{Size: n, Seed: uint64(i)}
				require.NoError(t, c.call(rig.Context(t), p, order{}), "%d bytes", n)
				list = append(list, p)
			}
			require.NoError(t, c.chat(rig.Context(t), list, order{}))
		})
	}
}
