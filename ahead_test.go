package gdrpc

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gdrpc/gdrpc/conn"
	"github.com/gdrpc/gdrpc/dialer"
	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/gpubuf/gpubuftest"
	"github.com/gdrpc/gdrpc/internal/testpb"
	"github.com/gdrpc/gdrpc/listener"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
)

// gpuSetup is a client and a server that share the memory of GPUs, as two
// processes of one host do.
type gpuSetup struct {
	*setup
	gpus   *gpubuftest.GPUs
	client *conn.Conn
	server atomic.Pointer[conn.Conn] // of the last call
}

// sharedLink dials loopback, where the two ends find that they share memory.
type sharedLink struct {
	*listener.Listener
	dialer *dialer.Dialer
	last   atomic.Pointer[conn.Conn]
}

func (l *sharedLink) dial(ctx context.Context, _ string) (net.Conn, error) {
	c, err := l.dialer.DialContext(ctx, l.Addr().String())
	if err == nil {
		l.last.Store(c.(*conn.Conn))
	}
	return c, err
}

func newSharedLink(t testing.TB) *sharedLink {
	quiet := conn.Config{Logger: slog.New(slog.DiscardHandler)}
	d, err := dialer.New(&dialer.Config{Conn: quiet, HandshakeTimeout: patience})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	l, err := listener.Listen("tcp", "127.0.0.1:0", &listener.Config{Conn: quiet, HandshakeTimeout: patience})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	return &sharedLink{Listener: l, dialer: d}
}

// connectGPUs makes a gpuSetup whose handler has not been called yet.
func connectGPUs(t testing.TB, keep time.Duration) *gpuSetup {
	t.Helper()
	aheadKeep, aheadStall = keep, patience // machines that are busy stall too
	s := &gpuSetup{gpus: gpubuftest.NewGPUs(t)}
	pool := func() *gpubuf.Pool {
		p, err := gpubuf.NewPool(gpubuf.Config{Device: s.gpus.Device()})
		require.NoError(t, err)
		t.Cleanup(func() { until(t, func() bool { return p.Close() == nil }) })
		return p
	}
	l := newSharedLink(t)
	s.setup = connect(t, l, Config{Pool: pool()}, Config{Pool: pool()})
	s.client = l.last.Load()
	require.NoError(t, s.client.AwaitIPC(testContext(t)))
	s.impl.handle = s.bounce
	return s
}

func (s *gpuSetup) bounce(ctx context.Context) error {
	p, _ := peer.FromContext(ctx)
	s.server.Store(connOf(p.LocalAddr))
	return bounce(ctx)
}

// call sends attachments and, if the handler bounces them, compares what comes back.
func (s *gpuSetup) call(t testing.TB, sizes ...int64) error {
	t.Helper()
	var slices []*gpubuf.Slice
	for i, n := range sizes {
		slices = append(slices, newSlice(t, s.clientPool, n, byte(i)))
	}
	defer freeSlices(slices)
	var reply Reply
	_, err := s.setup.client.Plain(NewOutgoingContext(testContext(t), slices...), &testpb.PlainMessage{}, ReplyAttachments(&reply))
	defer reply.Free()
	for i, r := range reply.Slices {
		requirePattern(t, r, sizes[i], byte(i))
		require.Equal(t, conn.PathIPC, reply.Paths[i])
	}
	return err
}

// warm calls until landings begin ahead on both sides.
func (s *gpuSetup) warm(t testing.TB) {
	t.Helper()
	for range 3 { // the first two have regions come and be opened
		require.NoError(t, s.call(t, 300_000))
	}
	require.NotZero(t, s.client.Stats().Begun)
	require.NotZero(t, s.server.Load().Stats().Begun)
}

// TestAhead: once a landing has ended by ipc, the next ones begin when their
// messages come, on both sides, all of a message's attachments, and it shows in
// nothing but Stats.
func TestAhead(t *testing.T) {
	s := connectGPUs(t, patience)
	s.warm(t)
	server, before := s.server.Load(), s.server.Load().Stats()
	_, _, started := s.gpus.Counts()
	for range 10 {
		require.NoError(t, s.call(t, 300_000, 17_001, 2<<20+5))
	}
	st := server.Stats()
	require.EqualValues(t, 30, st.Begun-before.Begun)
	require.EqualValues(t, 30, st.ByPath[conn.PathIPC]-before.ByPath[conn.PathIPC])
	_, _, now := s.gpus.Counts()
	require.Equal(t, 60, now-started)
	for _, c := range []*conn.Conn{s.client, server} {
		require.Zero(t, c.Stats().InVain)
		require.Zero(t, c.Stats().LandingsFailed)
	}
}

// TestAheadLeavesAlone: messages with attachments that cannot begin, or not without
// waiting, land as ever.
func TestAheadLeavesAlone(t *testing.T) {
	s := connectGPUs(t, patience)
	s.warm(t)
	before := s.server.Load().Stats()
	t.Run("inline", func(t *testing.T) {
		slices := []*gpubuf.Slice{newSlice(t, s.clientPool, 300_000, 1), newSlice(t, s.clientPool, 100, 2)}
		_, err := s.setup.client.Plain(NewOutgoingContext(testContext(t), slices...), &testpb.PlainMessage{})
		freeSlices(slices)
		require.NoError(t, err)
	})
	t.Run("busy", func(t *testing.T) {
		s.gpus.OnStart = func() error { return context.DeadlineExceeded }
		require.NoError(t, s.call(t, 300_000))
		s.gpus.OnStart = nil
	})
	t.Run("no memory", func(t *testing.T) {
		require.Nil(t, s.serverPool.TryAlloc(80<<20))
		require.NoError(t, s.call(t, 80<<20)) // in a region that is made for it
	})
	t.Run("half of the pool used", func(t *testing.T) {
		large, err := s.serverPool.Alloc(testContext(t), s.serverPool.Stats().Limit/aheadShare)
		require.NoError(t, err)
		defer large.Free()
		require.NoError(t, s.call(t, 300_000))
	})
	require.Equal(t, before.Begun, s.server.Load().Stats().Begun)
	require.NoError(t, s.call(t, 300_000))
	require.Equal(t, before.Begun+1, s.server.Load().Stats().Begun)
}

// TestAheadInVain: what is begun and not landed in the pool costs itself and no
// more: its memory is free when the call is over, and further messages are left
// alone for a while, each time for longer.
func TestAheadInVain(t *testing.T) {
	for name, handle := range map[string]func(context.Context) error{
		"not landed": func(context.Context) error { return nil },
		"refused":    func(context.Context) error { return context.Canceled },
		"elsewhere": func(ctx context.Context) error {
			p, err := gpubuf.NewPool(gpubuf.Config{Device: gpuOf(ctx)})
			if err != nil {
				return err
			}
			a := FromIncomingContext(ctx)[0]
			dst, err := p.Alloc(ctx, a.Size())
			if err != nil {
				return err
			}
			err = a.LandInto(ctx, dst)
			dst.Free()
			if err == nil {
				err = p.Close()
			}
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := connectGPUs(t, patience)
			s.warm(t)
			server := s.server.Load()
			before := server.Stats().Begun
			s.impl.handle = func(ctx context.Context) error { return handle(context.WithValue(ctx, gpuKey{}, s.gpus.Device())) }
			for range 5 {
				err := s.call(t, 300_000)
				require.Equal(t, name == "refused", err != nil, "%v", err)
			}
			require.Equal(t, before+1, server.Stats().Begun, "no second one begins")
			require.EqualValues(t, 1, server.Stats().InVain)
			until(t, func() bool { return s.serverPool.Stats().Slices == 0 })

			// So many landings that are asked for, half of them, undo it.
			s.impl.handle = s.bounce
			calls := 0
			for ; server.Stats().Begun == before+1; calls++ {
				require.Less(t, calls, aheadDebt)
				require.NoError(t, s.call(t, 300_000))
			}
			require.Greater(t, calls, aheadDebt/2)
			require.EqualValues(t, 1, server.Stats().InVain)
		})
	}
}

type gpuKey struct{}

func gpuOf(ctx context.Context) gpubuf.Device { return ctx.Value(gpuKey{}).(gpubuf.Device) }

// TestAheadSlow: a handler that asks long after its message came finds nothing of
// what had begun, and lands as ever.
func TestAheadSlow(t *testing.T) {
	s := connectGPUs(t, time.Second)
	s.warm(t)
	server := s.server.Load()
	s.impl.handle = func(ctx context.Context) error {
		until(t, func() bool { return server.Stats().InVain == 1 })
		until(t, func() bool { return s.serverPool.Stats().Slices == 0 })
		return s.bounce(ctx)
	}
	require.NoError(t, s.call(t, 300_000))
}

// TestAheadWithdrawn has a copy begin and its call cancelled before it is done: the
// handler fails, and the memory is free once nothing writes to it.
func TestAheadWithdrawn(t *testing.T) {
	s := connectGPUs(t, patience)
	s.warm(t)
	gate, begun := make(chan struct{}), make(chan struct{}, 1)
	s.gpus.OnCopy = func() {
		begun <- struct{}{}
		<-gate
	}
	entered, handled := make(chan struct{}), make(chan error, 1)
	s.impl.handle = func(ctx context.Context) error {
		close(entered) // a call that is cancelled before has no handler
		_, err := FromIncomingContext(ctx).LandAll(ctx)
		handled <- err
		return err
	}
	ctx, cancel := context.WithCancel(testContext(t))
	src := newSlice(t, s.clientPool, 300_000, 1)
	called := make(chan error, 1)
	go func() {
		_, err := s.setup.client.Plain(NewOutgoingContext(ctx, src), &testpb.PlainMessage{})
		called <- err
	}()
	<-begun
	<-entered
	cancel()
	requireStatus(t, <-called, codes.Canceled)
	require.NoError(t, src.CopyIn(0, pattern(300_000, 9)), "it is the client's again")
	src.Free()
	require.NotZero(t, s.serverPool.Stats().Slices)
	close(gate)
	require.Error(t, <-handled)
	until(t, func() bool { return s.serverPool.Stats().Slices == 0 })
}

// TestAheadClosed has a Conn end while a copy is under way that nobody has asked
// for: it is given up, and the Conn is taken apart once it is done.
func TestAheadClosed(t *testing.T) {
	s := connectGPUs(t, patience)
	s.warm(t)
	gate, begun := make(chan struct{}), make(chan struct{}, 1)
	s.gpus.OnCopy = func() {
		begun <- struct{}{}
		<-gate
	}
	s.impl.handle = func(context.Context) error { return nil }
	server := s.server.Load()
	a, before := server.Ahead().(*ahead), server.Stats().Begun
	src := newSlice(t, s.clientPool, 300_000, 1)
	o, err := conn.NewOffer(src)
	require.NoError(t, err)
	require.NoError(t, s.client.AddOffer(o))
	d := descriptor{size: src.Len(), token: o.Token(), flags: o.Flags(), place: s.client.Place(o)}
	b := appendOfferHeader(make([]byte, 5), []descriptor{d})
	a.Message(b) // of a message that never is a call's
	<-begun
	a.Message(b) // again: it has begun
	require.EqualValues(t, 1, server.Stats().Begun-before)
	s.server.Load().Close()
	until(t, func() bool { return server.Stats().InVain == 1 })
	close(gate)
	until(t, func() bool { return s.serverPool.Stats().Slices == 0 })
	a.Message(b)
	require.Zero(t, s.serverPool.Stats().Slices, "it has ended")
	o.Withdraw()
	<-o.Drained()
	src.Free()
}

// TestAheadStream: messages of streams begin ahead too.
func TestAheadStream(t *testing.T) {
	s := connectGPUs(t, patience)
	s.warm(t)
	before := s.server.Load().Stats().Begun
	chat, err := s.setup.client.Chat(testContext(t))
	require.NoError(t, err)
	for i := range 5 {
		src := newSlice(t, s.clientPool, 300_000, byte(i))
		_, err := Send(chat, &testpb.PlainMessage{}, src)
		require.NoError(t, err)
		src.Free()
		_, as, err := Recv(chat)
		require.NoError(t, err)
		got, err := as[0].Slice(testContext(t))
		require.NoError(t, err)
		requirePattern(t, got, 300_000, byte(i))
		require.Equal(t, conn.PathIPC, as[0].Path())
		as.Free()
	}
	require.NoError(t, chat.CloseSend())
	require.Equal(t, before+5, s.server.Load().Stats().Begun)
	require.Zero(t, s.server.Load().Stats().InVain)
}

// TestAheadHostile: bytes that look like offers and are none, or bad ones, begin
// nothing, hold nothing and break nothing.
func TestAheadHostile(t *testing.T) {
	s := connectGPUs(t, time.Second)
	s.warm(t)
	server := s.server.Load()
	a := server.Ahead().(*ahead)
	before := server.Stats().Begun
	src := newSlice(t, s.clientPool, 300_000, 1)
	defer src.Free()
	o, err := conn.NewOffer(src)
	require.NoError(t, err)
	require.NoError(t, s.client.AddOffer(o))
	good := descriptor{size: src.Len(), token: o.Token(), flags: o.Flags(), place: s.client.Place(o)}
	message := func(list ...descriptor) []byte { return appendOfferHeader(make([]byte, 5), list) }
	change := func(f func(d *descriptor)) descriptor {
		d := good
		f(&d)
		return d
	}
	whole := message(good)
	for n := range len(whole) {
		a.Message(whole[:n])
	}
	compressed := message(good)
	compressed[0] = 1
	for _, b := range [][]byte{
		compressed,
		message(good, good),
		message(good, change(func(d *descriptor) { d.inline = true; d.size = 3 })),
		message(change(func(d *descriptor) { d.place.Region = 1 << 50 })),
		message(change(func(d *descriptor) { d.place = conn.Place{} })),
		message(change(func(d *descriptor) { d.place.Offset = 1 << 40 })),
		message(change(func(d *descriptor) { d.size = 1 << 60 })),
		message(change(func(d *descriptor) { d.flags |= conn.OfferPending })),
		append(make([]byte, 5), offerMark, 0),
		append(make([]byte, 5), offerMark, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff),
	} {
		a.Message(b)
	}
	require.Equal(t, before, server.Stats().Begun)
	until(t, func() bool { return s.serverPool.Stats().Slices == 0 }) // the last reply's is released a moment later

	// A place that stands no more is begun, and given up.
	a.Message(message(change(func(d *descriptor) { d.place.Generation++ })))
	until(t, func() bool { return server.Stats().InVain == 1 })
	until(t, func() bool { return s.serverPool.Stats().Slices == 0 })
	o.Withdraw()
	<-o.Drained()
	require.NoError(t, s.call(t, 300_000))
}

// TestAheadMany has calls and streams land at the same time what is of all sizes:
// nothing that is asked for begins in vain, and no memory is held afterwards.
func TestAheadMany(t *testing.T) {
	const workers, landings, most = 8, 200, 1 << 20
	s := connectGPUs(t, patience)
	s.warm(t)
	server := s.server.Load()
	source := newSlice(t, s.clientPool, 2*most, 1)
	defer source.Free()
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			dice := rand.New(rand.NewPCG(1, uint64(w)))
			chat, err := s.setup.client.Chat(testContext(t))
			if !assert.NoError(t, err) {
				return
			}
			for range landings {
				part, err := source.Sub(dice.Int64N(most), 1+dice.Int64N(most))
				if !assert.NoError(t, err) {
					return
				}
				if w%2 == 0 {
					_, err = s.setup.client.Plain(NewOutgoingContext(testContext(t), part), &testpb.PlainMessage{})
				} else {
					err = bounced(chat, part)
				}
				part.Free()
				if !assert.NoError(t, err) {
					return
				}
			}
			assert.NoError(t, chat.CloseSend())
		})
	}
	wg.Wait()
	require.Zero(t, server.Stats().InVain)
	require.Greater(t, server.Stats().Begun, uint64(workers*landings/2))
	until(t, func() bool { return s.serverPool.Stats().Slices == 0 })
	// The calls' replies are not asked for; the streams' are.
	begun, inVain := s.client.Stats().Begun, s.client.Stats().InVain
	require.NotZero(t, begun-inVain)
	require.NotZero(t, inVain)
}

// bounced sends a slice on a stream and lands what comes back.
func bounced(chat chatClient, s *gpubuf.Slice) error {
	if _, err := Send(chat, &testpb.PlainMessage{}, s); err != nil {
		return err
	}
	_, as, err := Recv(chat)
	if err != nil {
		return err
	}
	_, err = as.LandAll(chat.Context())
	as.Free()
	return err
}

// TestAheadOther: what has begun is for an attachment of the same size and place
// alone, and for one; the peer chooses the tokens.
func TestAheadOther(t *testing.T) {
	s := connectGPUs(t, patience)
	s.warm(t)
	a := s.server.Load().Ahead().(*ahead)
	src := newSlice(t, s.clientPool, 300_000, 1)
	defer src.Free()
	o, err := conn.NewOffer(src)
	require.NoError(t, err)
	require.NoError(t, s.client.AddOffer(o))
	good := descriptor{size: src.Len(), token: o.Token(), flags: o.Flags(), place: s.client.Place(o)}
	a.Message(appendOfferHeader(make([]byte, 5), []descriptor{good}))
	attachment := func(d descriptor) *Attachment { return &Attachment{desc: d} }
	large, inline, moved := good, good, good
	large.size++
	inline.inline = true
	moved.place.Offset++
	for _, d := range []descriptor{large, inline, moved} {
		require.Nil(t, a.take(Attachments{attachment(d)}))
		a.drop(attachment(d))
	}
	require.Zero(t, s.server.Load().Stats().InVain)
	require.Nil(t, a.take(Attachments{attachment(good), attachment(good)}))
	require.EqualValues(t, 1, s.server.Load().Stats().InVain)
	require.Equal(t, -aheadDebt, a.spare)
	until(t, func() bool { return s.serverPool.Stats().Slices == 0 })
	o.Withdraw()
	<-o.Drained()
}

// TestAheadStall: where beginning keeps the reader for too long, messages are left
// alone for a while.
func TestAheadStall(t *testing.T) {
	s := connectGPUs(t, patience)
	s.warm(t)
	server := s.server.Load()
	a, before := server.Ahead().(*ahead), server.Stats().Begun
	a.mu.Lock()
	a.stall = 0
	a.mu.Unlock()
	require.NoError(t, s.call(t, 300_000))
	require.NoError(t, s.call(t, 300_000))
	require.Equal(t, before+1, server.Stats().Begun)
}
