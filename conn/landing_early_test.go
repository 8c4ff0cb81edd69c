package conn

import (
	"context"
	"errors"
	"testing"

	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/gpubuf/gpubuftest"
	"github.com/stretchr/testify/require"
)

// earlyTest is a source on one side, with an offer and its place, and a destination on
// the other, which has opened the source's memory.
type earlyTest struct {
	gpus           *gpubuftest.GPUs
	client, server *Conn
	src, dst       *gpubuf.Slice
	pools          [2]*gpubuf.Pool
	want           []byte
	offer          *Offer
	place          Place
}

const earlySize = 300_001

func newEarly(t *testing.T) *earlyTest {
	e := &earlyTest{gpus: gpubuftest.NewGPUs(t)}
	e.pools = [2]*gpubuf.Pool{gpuPool(t, e.gpus), gpuPool(t, e.gpus)}
	e.client, e.server = ipcPair(t, quiet())
	greet(t, e.client, e.server)
	e.src, e.want = gpuFilled(t, e.pools[0], earlySize)
	e.dst, _ = gpuFilled(t, e.pools[1], earlySize)
	e.offer = offer(t, e.client, e.src)
	e.place = e.client.Place(e.offer)
	require.Eventually(t, func() bool { return e.server.ipc.knows(e.place.Region) }, patience, tick)
	require.Nil(t, e.land(), "the memory is not open yet")
	require.Equal(t, PathIPC, move(t, e.client, e.server, e.src, e.dst, e.want))
	require.NoError(t, e.dst.CopyIn(0, make([]byte, earlySize)))
	return e
}

func (e *earlyTest) land() *Landing {
	return e.server.LandAhead(e.offer.Token(), e.offer.Flags(), e.place, e.dst)
}

// close frees everything; nothing may be held.
func (e *earlyTest) close(t *testing.T) {
	e.offer.Withdraw()
	<-e.offer.Drained()
	closeBoth(e.client, e.server)
	e.src.Free()
	e.dst.Free()
	for _, p := range e.pools {
		require.NoError(t, p.Close())
	}
}

// TestLandAhead: the copy is made without Wait, which finds it done.
func TestLandAhead(t *testing.T) {
	e := newEarly(t)
	defer e.close(t)
	l := e.land()
	require.NotNil(t, l)
	require.Eventually(t, l.early.copy.Done, patience, tick)
	require.NoError(t, l.Wait(soon(t)))
	require.NoError(t, l.Wait(soon(t)), "again")
	<-l.Consumed()
	require.Equal(t, PathIPC, l.Path())
	requireBytes(t, e.want, e.dst)
	st := e.server.Stats()
	require.EqualValues(t, 1, st.Begun)
	require.Zero(t, st.InVain)
	require.EqualValues(t, 2, st.ByPath[PathIPC])
}

// TestLandAheadNot: it does not begin what would have to wait, or go another way.
func TestLandAheadNot(t *testing.T) {
	e := newEarly(t)
	defer e.close(t)
	good := e.place
	for name, change := range map[string]func(){
		"no place":       func() { e.place = Place{} },
		"unknown region": func() { e.place.Region++ },
		"outside":        func() { e.place.Offset = e.src.Region().Size() - earlySize + 1 },
		"negative":       func() { e.place.Offset = -1 },
		"busy":           func() { e.gpus.OnStart = func() error { return errors.New("busy") } },
	} {
		change()
		require.Nil(t, e.land(), name)
		e.place, e.gpus.OnStart = good, nil
	}
	require.Nil(t, e.server.LandAhead(e.offer.Token(), e.offer.Flags()|OfferPending, good, e.dst), "not ready")
	host := alloc(t, newPool(t, "host"), earlySize)
	require.Nil(t, e.server.LandAhead(e.offer.Token(), e.offer.Flags(), good, host), "host memory")
	require.Zero(t, e.server.Stats().Begun)
	require.Zero(t, e.server.recv.count())
	e.server.ipc.lose(errors.New("cut"), false)
	require.Nil(t, e.land(), "no shared memory")
}

// gated has copies in the background wait until open is called.
func (e *earlyTest) gated() (begun <-chan struct{}, open func()) {
	gate, start := make(chan struct{}), make(chan struct{}, 1)
	e.gpus.OnCopy = func() {
		start <- struct{}{}
		<-gate
	}
	return start, func() { close(gate) }
}

// TestLandAheadDropped: nobody waits for a landing, which keeps its memory until the
// copy is over.
func TestLandAheadDropped(t *testing.T) {
	e := newEarly(t)
	defer e.close(t)
	begun, open := e.gated()
	l := e.land()
	<-begun
	l.Drop()
	select {
	case <-l.Consumed():
		require.Fail(t, "the copy is under way")
	default:
	}
	require.EqualValues(t, 1, e.server.Stats().InVain)
	open()
	<-l.Consumed()
	require.ErrorIs(t, l.Wait(soon(t)), errDropped)
}

// TestLandAheadWithdrawn: what was copied of an offer that ended meanwhile is not
// taken for its bytes.
func TestLandAheadWithdrawn(t *testing.T) {
	e := newEarly(t)
	defer e.close(t)
	begun, open := e.gated()
	l := e.land()
	<-begun
	e.offer.Withdraw()
	<-e.offer.Drained()
	open()
	require.ErrorContains(t, l.Wait(soon(t)), "refused")
	<-l.Consumed()
}

// TestLandAheadClosed: the Conn ends while the copy is under way, and is taken apart
// once who waits for it, or drops it, has.
func TestLandAheadClosed(t *testing.T) {
	for name, finish := range map[string]func(l *Landing){
		"dropped": (*Landing).Drop,
		"waited for": func(l *Landing) {
			_ = l.Wait(context.Background())
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEarly(t)
			defer e.close(t)
			begun, open := e.gated()
			l := e.land()
			<-begun
			e.server.fail(errors.New("test"))
			<-l.done
			finished := make(chan struct{})
			go func() {
				defer close(finished)
				finish(l)
			}()
			open()
			<-finished
			<-l.Consumed()
			<-e.server.ending.done
		})
	}
}

// TestLandAheadRegionFreed: the owner of the source frees it while the copy is under
// way; the memory goes when it is over.
func TestLandAheadRegionFreed(t *testing.T) {
	e := newEarly(t)
	begun, open := e.gated()
	l := e.land()
	<-begun
	e.offer.Withdraw()
	<-e.offer.Drained()
	e.src.Free()
	closed := make(chan error, 1)
	go func() { closed <- e.pools[0].Close() }()
	require.Eventually(t, func() bool {
		e.server.ipc.mu.Lock()
		defer e.server.ipc.mu.Unlock()
		im := e.server.ipc.imports[e.place.Region]
		return im != nil && im.ended
	}, patience, tick)
	memories, _, _ := e.gpus.Counts()
	require.Equal(t, 2, memories)
	l.Drop()
	open()
	require.NoError(t, <-closed)
	<-l.Consumed()
	e.dst.Free()
	closeBoth(e.client, e.server)
	require.NoError(t, e.pools[1].Close())
}

// TestLandAheadLanesDead: the lanes die while a landing begins.
func TestLandAheadLanesDead(t *testing.T) {
	e := newEarly(t)
	defer e.close(t)
	e.server.recv.close(errors.New("test")) // before Offload tells
	require.NoError(t, e.server.Offload())
	require.Nil(t, e.land())
	require.Zero(t, e.server.Stats().Begun)
}

// TestLandAheadLost: a landing that shared memory is lost for as it begins goes no
// other way, since nobody waits for it.
func TestLandAheadLost(t *testing.T) {
	e := newEarly(t)
	defer e.close(t)
	e.gpus.OnStart = func() error { e.server.ipc.lose(errors.New("cut"), false); return nil }
	require.Nil(t, e.land())
	e.server.recv.mu.Lock()
	defer e.server.recv.mu.Unlock()
	for _, r := range e.server.recv.rails {
		require.Zero(t, r.outstanding())
	}
	require.Empty(t, e.server.recv.live)
	require.Zero(t, e.server.Stats().LandingsFailed)
}
