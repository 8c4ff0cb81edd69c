package gpu

import (
	"errors"
	"testing"
	"time"

	"github.com/gdrpc/gdrpc"
	"github.com/gdrpc/gdrpc/conn"
	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/internal/testpb"
	"github.com/gdrpc/gdrpc/interop/internal/rig"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// TestOutOfMemory: a GPU that has no memory left fails the calls that need some,
// with a status that says so, and serves again once it has.
func TestOutOfMemory(t *testing.T) {
	onEach(t, func(t *testing.T, k kind) {
		_, own := k.pool(t, gpubuf.Config{RegionSize: 64 << 20})
		c := k.open(t, 512<<20)
		pool := rig.NewDevicePool(t, gpubuf.Config{Device: c.Device, RegionSize: 8 << 20, MaxWait: 50 * time.Millisecond})
		client := dial(t, serve(t, &service{pool: pool}, conn.Config{}, listen(t)), own, conn.PathSoft, false)
		defer client.Close()
		ctx := rig.Context(t)
		large := rig.Payload{Size: 12 << 20, Seed: 1}
		src, err := large.Slice(ctx, own)
		require.NoError(t, err)
		defer src.Free()

		hog := takeAll(t, c.Device)
		_, err = testpb.NewEchoClient(client).Declared(gdrpc.NewOutgoingContext(ctx, src), &testpb.DeclaredMessage{Text: text(order{Drop: true})})
		freeMemory(t, hog)
		require.Equal(t, codes.ResourceExhausted, status.Code(err), "%v", err)
		require.NoError(t, client.call(ctx, large, order{}))
	})
}

// takeAll allocates until nothing is left.
func takeAll(t testing.TB, d gpubuf.Device) (all []gpubuf.Memory) {
	t.Helper()
	for size := int64(16 << 30); size >= 2<<20; size /= 2 {
		for {
			m, err := d.Alloc(size)
			if errors.Is(err, gpubuf.ErrOutOfMemory) {
				break
			}
			require.NoError(t, err)
			all = append(all, m)
		}
	}
	return all
}

func freeMemory(t testing.TB, all []gpubuf.Memory) {
	t.Helper()
	for _, m := range all {
		require.NoError(t, m.Free())
	}
}
