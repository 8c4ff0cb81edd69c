package ending

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"testing"

	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/internal/leak/leaktest"
	"github.com/gdrpc/gdrpc/interop/internal/rig"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

const large = 5 << 20 // bytes: more than fits a message

// inFlight is a call whose reply waits for memory of the client: the server has
// sent its answer and the RPC is over, the lanes are not.
type inFlight struct {
	client  *rig.Client
	release func() // gives the reply its memory
	done    chan error
	called  bool
	last    error // of the call before
}

// startReply returns once the reply waits.
func startReply(t *testing.T, s *rig.Server, opts ...grpc.DialOption) *inFlight {
	t.Helper()
	const memory = 8 << 20
	pool := rig.NewPool(t, gpubuf.Config{Limit: memory, RegionSize: memory, ReplyReserve: -1})
	full, err := pool.Alloc(rig.Context(t), memory)
	require.NoError(t, err)
	f := &inFlight{release: sync.OnceFunc(full.Free), done: make(chan error, 1)}
	t.Cleanup(f.release)
	f.client = rig.Dial(t, rig.GdrpcClient, s.Addr, rig.ClientConfig{Pool: pool, GRPC: opts})
	ctx := rig.Context(t)
	require.True(t, rig.Eventually(func() bool { return f.waits(ctx) }), "no reply waits: %v", f.last)
	return f
}

// waits reports whether the reply waits for memory. It makes the call, and makes
// it again where the server has ended the connection before.
func (f *inFlight) waits(ctx context.Context) bool {
	if f.client.Pool.Stats().Waiting > 0 {
		return true
	}
	select {
	case f.last = <-f.done:
	default:
		if f.called {
			return false
		}
	}
	f.called = true
	go func() { f.done <- f.client.Right(ctx, rig.Call{Order: rig.Order{Reply: rig.Series(1, large)}}) }()
	return false
}

// requireLands gives the reply its memory: it lands.
func (f *inFlight) requireLands(t *testing.T) {
	t.Helper()
	f.release()
	require.NoError(t, <-f.done)
}

// requireNoPort waits until a server listens no more.
func requireNoPort(t *testing.T, addr string) {
	t.Helper()
	require.True(t, rig.Eventually(func() bool {
		c, err := net.Dial("tcp", addr)
		if err == nil {
			c.Close()
		}
		return err != nil
	}))
}

// storm is callers that call without a pause, with attachments of many sizes
// both ways.
type storm struct {
	tasks sync.WaitGroup
	begun chan struct{} // has an element for each call, as far as there is room
	stop  chan struct{}

	mu    sync.Mutex
	right int     // calls that succeeded; guarded by mu
	errs  []error // guarded by mu
}

// startStorm starts n callers. Each ends with its first error, or with stop.
func startStorm(t *testing.T, c *rig.Client, n int, opts ...grpc.CallOption) *storm {
	t.Helper()
	s := &storm{begun: make(chan struct{}, 1024), stop: make(chan struct{})}
	ctx := rig.Context(t)
	for i := range n {
		s.tasks.Go(func() { s.call(ctx, c, rig.Random(t, i).Int64N, opts) })
	}
	gone := make(chan struct{})
	go func() {
		s.tasks.Wait()
		close(gone)
	}()
	for range 3 * n {
		select {
		case <-s.begun:
		case <-gone:
		}
	}
	return s
}

func (s *storm) call(ctx context.Context, c *rig.Client, size func(int64) int64, opts []grpc.CallOption) {
	for i := uint64(0); ; i++ {
		select {
		case <-s.stop:
			return
		default:
		}
		select {
		case s.begun <- struct{}{}:
		default:
		}
		err := c.Right(ctx, rig.Call{
			Request: rig.Series(i, size(4<<20), size(100)), Order: rig.Order{Reply: rig.Series(i, size(100), size(4<<20))}, Options: opts,
		})
		s.mu.Lock()
		if err == nil {
			s.right++
		} else {
			s.errs = append(s.errs, err)
		}
		s.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// requireEnd waits for the callers. Those that failed must have done so with one
// of the codes.
func (s *storm) requireEnd(t *testing.T, allowed ...codes.Code) {
	t.Helper()
	s.tasks.Wait()
	for _, err := range s.errs {
		require.True(t, slices.Contains(allowed, status.Code(err)), "%v", errors.Join(s.errs...))
	}
	t.Logf("%d calls right, %d cut off", s.right, len(s.errs))
}
