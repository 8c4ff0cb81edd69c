package conn

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/gpubuf/emu"
	"github.com/gdrpc/gdrpc/gpubuf/host"
	"github.com/stretchr/testify/require"
)

// awaiting returns dst as a destination that is not ready before the event.
func awaiting(t testing.TB, dst *gpubuf.Slice) (*gpubuf.Slice, *emu.Event) {
	t.Helper()
	e := emu.NewEvent()
	later := dst.After(e)
	t.Cleanup(later.Free)
	return later, e
}

// TestAwaitDestination lands in memory that is in use until an event, by every
// way in which bytes come.
func TestAwaitDestination(t *testing.T) {
	for name, tc := range map[string]struct {
		size    int
		wait    time.Duration
		push    bool
		lie     bool // the push does not come
		pending bool
	}{
		"bulk":               {size: 3 << 20, wait: time.Hour}, // much longer than a stalled landing
		"small":              {size: 100, wait: time.Second},
		"pushed":             {size: 5000, wait: time.Second, push: true},
		"pushed and dropped": {size: 5000, wait: time.Hour, push: true},
		"push lost":          {size: 5000, wait: time.Second, push: true, lie: true},
		"source not ready":   {size: 1 << 20, wait: time.Second, pending: true},
	} {
		for _, kind := range []string{"host", "emu"} {
			t.Run(name+" "+kind, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					pool := newPool(t, kind)
					client, server := memPair(t, quiet())
					greet(t, client, server)
					s, want := filled(t, pool, tc.size, 1)
					source := emu.NewEvent()
					src := s.After(source)
					defer src.Free()
					if !tc.pending {
						source.Fire(nil)
					}
					o := offer(t, client, src)
					flags := o.Flags()
					if tc.push {
						require.True(t, tc.lie || client.Push(o))
						flags |= OfferPushed
					}
					pushed := client.Stats().BytesServed
					dst, e := awaiting(t, alloc(t, pool, tc.size))
					before := bytesOf(t, dst)
					l := server.Land(o.Token(), flags, dst)
					source.Fire(nil)
					time.Sleep(tc.wait)
					synctest.Wait()
					requireBytes(t, before, dst)
					require.Zero(t, server.Stats().Landings)
					require.Equal(t, pushed, client.Stats().BytesServed, "nothing was asked for")
					e.Fire(nil)
					require.NoError(t, l.Wait(t.Context()))
					requireBytes(t, want, dst)
					<-l.Consumed()
					o.Withdraw()
					<-o.Drained()
				})
			})
		}
	}
}

func bytesOf(t testing.TB, s *gpubuf.Slice) []byte {
	t.Helper()
	b := make([]byte, s.Len())
	require.NoError(t, s.CopyOut(b, 0))
	return b
}

// TestAwaitDestinationNever has everything happen to a landing but that its
// destination becomes ready.
func TestAwaitDestinationNever(t *testing.T) {
	for name, tc := range map[string]struct {
		act func(e *emu.Event, l *Landing)
		err string
	}{
		"event fails": {func(e *emu.Event, _ *Landing) { e.Fire(errors.New("kernel fault")) }, "event of the destination: kernel fault"},
		"conn fails":  {func(_ *emu.Event, l *Landing) { l.c.fail(errors.New("cut")) }, "cut"},
		"cancelled": {func(_ *emu.Event, l *Landing) {
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			l.Wait(ctx)
		}, "context canceled"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				pool := newPool(t, "host")
				client, server := memPair(t, quiet())
				greet(t, client, server)
				s, _ := filled(t, pool, 100, 1)
				o := offer(t, client, s)
				dst, e := awaiting(t, alloc(t, pool, 100))
				before := bytesOf(t, dst)
				l := server.Land(o.Token(), o.Flags(), dst)
				tc.act(e, l)
				require.ErrorContains(t, l.Wait(t.Context()), tc.err)
				<-l.Consumed()
				require.Zero(t, server.recv.count())
				e.Fire(nil) // too late
				synctest.Wait()
				requireBytes(t, before, dst)
				o.Withdraw()
				<-o.Drained()
			})
		})
	}
}

// TestAwaitDestinationFailed fails at once where the event has failed before.
func TestAwaitDestinationFailed(t *testing.T) {
	pool := newPool(t, "host")
	client, server := memPair(t, quiet())
	greet(t, client, server)
	s, want := filled(t, pool, 100, 1)
	o := offer(t, client, s)
	dst, e := awaiting(t, alloc(t, pool, 100))
	e.Fire(errors.New("kernel fault"))
	l := server.Land(o.Token(), o.Flags(), dst)
	require.ErrorContains(t, l.Wait(soon(t)), "event of the destination: kernel fault")
	<-l.Consumed()
	o.Withdraw()
	<-o.Drained()
	land(t, client, server, s, alloc(t, pool, 100), want)
}

// TestPushFailedSource pushes nothing of a source whose event has failed, whose
// bytes are anything.
func TestPushFailedSource(t *testing.T) {
	pool := newPool(t, "host")
	client, server := memPair(t, quiet())
	greet(t, client, server)
	s, _ := filled(t, pool, 100, 1)
	e := emu.NewEvent()
	src := s.After(e)
	defer src.Free()
	e.Fire(errors.New("kernel fault"))
	o := offer(t, client, src)
	require.False(t, client.Push(o))
	l := server.Land(o.Token(), o.Flags(), alloc(t, pool, 100))
	require.ErrorContains(t, l.Wait(soon(t)), "could not read its source")
	<-l.Consumed()
	o.Withdraw()
	<-o.Drained()
}

// TestLandWrapped moves bytes between memory that no pool made, at any address,
// and leaves no registration behind.
func TestLandWrapped(t *testing.T) {
	for _, p := range pairs {
		for _, kind := range []string{"host", "emu"} {
			t.Run(p.name+" "+kind, func(t *testing.T) {
				client, server := p.make(t, quiet())
				greet(t, client, server)
				whole := alloc(t, newPool(t, kind), 4<<20) // the owner's
				before := client.d.registered()
				wrapped := func(off, n int64) (*gpubuf.Slice, gpubuf.Event) { return wrap(t, whole, off, n) }
				for _, n := range []int64{1, 300, 65537, 1<<20 + 1} {
					src, srcReleased := wrapped(3, n)
					dst, dstReleased := wrapped(2<<20+5, n)
					want := make([]byte, n)
					for i := range want {
						want[i] = byte(int64(i) ^ n)
					}
					require.NoError(t, whole.CopyIn(0, make([]byte, 4<<20)))
					require.NoError(t, src.CopyIn(0, want))
					land(t, client, server, src, dst, want)
					around := bytesOf(t, whole)
					require.Zero(t, around[2<<20+4])
					require.Zero(t, around[2<<20+5+n])
					src.Free()
					dst.Free()
					<-srcReleased.Done()
					<-dstReleased.Done()
					require.NoError(t, srcReleased.Err())
					require.NoError(t, dstReleased.Err())
				}
				// The blocks of emu's staging stay registered, and no more.
				require.LessOrEqual(t, client.d.registered(), before+1)
			})
		}
	}
}

// wrap makes a slice of n bytes at off of memory that whole's owner gave up to
// it.
func wrap(t testing.TB, whole *gpubuf.Slice, off, n int64) (*gpubuf.Slice, gpubuf.Event) {
	t.Helper()
	var m gpubuf.Memory
	var err error
	if b := whole.HostBytes(); b != nil {
		m, err = whole.Device().(*host.Device).Wrap(b[off : off+n])
	} else {
		m, err = whole.Device().(*emu.Device).Wrap(whole.Ptr()+gpubuf.DevicePtr(off), n)
	}
	require.NoError(t, err)
	s, released, err := gpubuf.Wrap(whole.Device(), m, nil)
	require.NoError(t, err)
	return s, released
}

// registered returns how many regions the domain has registered.
func (d *Domain) registered() int {
	d.soft.regions.mu.RLock()
	defer d.soft.regions.mu.RUnlock()
	return len(d.soft.regions.byID)
}

// TestLandWrappedIPC keeps wrapped memory from other processes where its owner
// did not say that they may have it.
func TestLandWrappedIPC(t *testing.T) {
	pool := newPool(t, "emu")
	client, server := ipcPair(t, quiet())
	greet(t, client, server)
	whole, want := filled(t, pool, 200_000, 1)
	require.Equal(t, PathIPC, move(t, client, server, whole, alloc(t, pool, 200_000), want))
	src, released := wrap(t, whole, 3, 100_000)
	require.Equal(t, PathSoft, move(t, client, server, src, alloc(t, pool, 100_000), want[3:100_003]))
	dst, dstReleased := wrap(t, alloc(t, pool, 200_000), 3, 200_000-3)
	tail, err := whole.Sub(3, 200_000-3)
	require.NoError(t, err)
	require.Equal(t, PathIPC, move(t, client, server, tail, dst, want[3:]), "a destination is not shared")
	for _, s := range []*gpubuf.Slice{src, dst, tail} {
		s.Free()
	}
	<-released.Done()
	<-dstReleased.Done()
}
