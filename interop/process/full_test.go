package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gdrpc/gdrpc/conn"
	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/interop/internal/rig"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	streampb "google.golang.org/grpc/interop/grpc_testing"
)

// TestFull keeps the windows of both directions full: those of the lanes by
// landings on both ends, and those of the stream by messages that nobody
// receives until the sender is stuck. Each call is bounded: one that waits for
// ever fails the test. GDR_TEST_FULL sets the time.
func TestFull(t *testing.T) {
	const lanes, inline, streams, empty = 4, 2, 2, 1
	landing := int64(24 << 20) // three windows each way, for four calls at a time
	if rig.PathOverNIC(t) != conn.PathNone {
		landing = 4 << 20 // more than the receives of a lane hold; an emulated NIC is slow
	}
	period := rig.Duration(t, "GDR_TEST_FULL", 3*time.Second)
	server, addr := startServer(t, rig.Local(t))
	pool := rig.NewPool(t, gpubuf.Config{})
	c := rig.Dial(t, rig.GdrpcClient, addr, rig.ClientConfig{Pool: pool})
	base := rig.Measure(t, pool)
	end := time.Now().Add(period)
	var l load
	l.run(lanes, "landings", end, func(ctx context.Context, i int) error {
		return c.Right(ctx, rig.Call{Request: rig.Series(uint64(i), landing, 70_000), Order: rig.Order{Bounce: true}})
	})
	l.run(inline, "inline calls", end, func(ctx context.Context, i int) error {
		return c.Right(ctx, rig.Call{Request: rig.Series(uint64(i), 16<<10), Order: rig.Order{Bounce: true}})
	})
	l.run(streams, "streams", end, func(ctx context.Context, _ int) error { return stuff(ctx, c) })
	l.run(empty, "empty calls", end, func(ctx context.Context, _ int) error { return c.Right(ctx, rig.Call{}) })
	require.NoError(t, l.wait())
	t.Logf("%v: %s", period, l.String())
	require.NoError(t, c.Close())
	base.Require(t, "after %v", period)
	server.Stop(t)
}

// load is callers of several kinds that run at the same time.
type load struct {
	tasks sync.WaitGroup
	kinds []*kind

	mu   sync.Mutex
	errs []error // guarded by mu
}

// kind is the callers of one kind.
type kind struct {
	name  string
	done  atomic.Int64
	worst atomic.Int64 // duration of the slowest
}

// run starts n callers, which call f until the end, and once at least.
func (l *load) run(n int, name string, end time.Time, f func(context.Context, int) error) {
	k := &kind{name: name}
	l.kinds = append(l.kinds, k)
	for i := range n {
		l.tasks.Go(func() {
			for first := i; i == first || time.Now().Before(end); i += n {
				ctx, cancel := context.WithTimeout(context.Background(), 2*rig.Patience)
				start := time.Now()
				err := f(ctx, i)
				cancel()
				if err != nil {
					l.mu.Lock()
					l.errs = append(l.errs, fmt.Errorf("%s: call %d: %w", name, i, err))
					l.mu.Unlock()
					return
				}
				k.done.Add(1)
				k.worst.Store(max(k.worst.Load(), int64(time.Since(start))))
			}
		})
	}
}

// wait waits for all callers. It fails if one did, or if a kind did nothing.
func (l *load) wait() error {
	l.tasks.Wait()
	for _, k := range l.kinds {
		if k.done.Load() == 0 {
			l.errs = append(l.errs, fmt.Errorf("%s: none was done", k.name))
		}
	}
	return errors.Join(l.errs...)
}

// String tells how many calls of each kind were done, and of the slowest.
func (l *load) String() (s string) {
	for i, k := range l.kinds {
		if i > 0 {
			s += ", "
		}
		s += fmt.Sprintf("%d %s (slowest %v)", k.done.Load(), k.name, time.Duration(k.worst.Load()).Round(time.Millisecond))
	}
	return s
}

// stuff opens a stream and sends until both ends are stuck with full windows,
// because this end receives nothing. Then it receives all.
func stuff(ctx context.Context, c *rig.Client) error {
	const size = 100_000
	s, err := streampb.NewTestServiceClient(c).FullDuplexCall(ctx)
	if err != nil {
		return err
	}
	var begun, sent atomic.Int64
	full := make(chan struct{})
	done := make(chan error, 1)
	go func() { done <- send(s, size, full, &begun, &sent) }()
	if err := stuck(ctx, &begun, &sent); err != nil {
		return err
	}
	close(full)
	received := int64(0)
	for {
		m, err := s.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("message %d of %d: %w", received, sent.Load(), err)
		}
		if n := len(m.GetPayload().GetBody()); n != size {
			return fmt.Errorf("message of %d bytes", n)
		}
		received++
	}
	if err := <-done; err != nil {
		return err
	}
	if n := sent.Load(); n != received {
		return fmt.Errorf("%d messages sent, %d received", n, received)
	}
	return nil
}

// send sends messages until the windows were full.
func send(s grpc.BidiStreamingClient[streampb.StreamingOutputCallRequest, streampb.StreamingOutputCallResponse], size int, full chan struct{}, begun, sent *atomic.Int64) error {
	m := &streampb.StreamingOutputCallRequest{
		Payload:            &streampb.Payload{Body: make([]byte, size)},
		ResponseParameters: []*streampb.ResponseParameters{{Size: int32(size)}},
	}
	for {
		select {
		case <-full:
			return s.CloseSend()
		default:
		}
		begun.Add(1)
		if err := s.Send(m); err != nil {
			return err
		}
		sent.Add(1)
	}
}

// stuck waits until a message has been begun that does not get away while 20
// looks are taken.
func stuck(ctx context.Context, begun, sent *atomic.Int64) error {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	last, same := int64(0), 0
	for same < 20 {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		n := sent.Load()
		if same++; n != last || begun.Load() == n {
			last, same = n, 0
		}
	}
	return nil
}
