package conn

import (
	"bytes"
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/stretchr/testify/require"
)

// move lands s, by its place if it has one, and returns the path. A place's region
// has arrived by then, so that the path is no matter of time.
func move(t testing.TB, from, to *Conn, s, dst *gpubuf.Slice, want []byte) Path {
	t.Helper()
	o := offer(t, from, s)
	p := from.Place(o)
	require.Eventually(t, func() bool { return p.Region == 0 || to.ipc.knows(p.Region) }, patience, tick)
	return moveFrom(t, to, o, p, dst, want)
}

// knows reports whether a landing in a region waits for nothing.
func (k *ipcLink) knows(region uint64) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.why != nil || k.imports[region] != nil && k.board != nil
}

// moveFrom lands the offer o from a place, and ends it.
func moveFrom(t testing.TB, to *Conn, o *Offer, p Place, dst *gpubuf.Slice, want []byte) Path {
	t.Helper()
	l := to.LandFrom(o.Token(), o.Flags(), p, dst)
	require.NoError(t, l.Wait(soon(t)))
	<-l.Consumed()
	requireBytes(t, want, dst)
	o.Withdraw()
	<-o.Drained()
	return l.Path()
}

// TestIPCKinds lands from and to every kind of memory, both ways, and tells why
// memory that is not shared goes another way.
func TestIPCKinds(t *testing.T) {
	for _, from := range []string{"shared", "emu", "host"} {
		for _, to := range []string{"shared", "emu", "host"} {
			t.Run(from+" to "+to, func(t *testing.T) {
				src, dst := newPool(t, from), newPool(t, to)
				client, server := ipcPair(t, quiet())
				greet(t, client, server)
				for i, size := range []int{1, 4096, 65537, 1<<20 + 3, 9<<20 + 1} {
					s, want := filled(t, src, size, byte(i))
					path := PathIPC
					if from == "host" {
						path = PathSoft
					}
					require.Equal(t, path, move(t, client, server, s, alloc(t, dst, size), want))
					require.Equal(t, path, move(t, server, client, s, alloc(t, dst, size), want))
				}
				st := server.Stats()
				require.Empty(t, st.IPC)
				if from == "host" {
					require.EqualValues(t, 5, st.ByPath[PathSoft])
					require.Equal(t, errNoPlace.Error(), st.NotIPC)
					return
				}
				require.EqualValues(t, 5, st.ByPath[PathIPC])
				require.Zero(t, client.Stats().BytesServed, "no byte went over a lane")
				require.Empty(t, st.NotIPC)
			})
		}
	}
}

// TestIPCRegions: a region is mapped once for a Conn, and unmapped when its
// owner frees it or the Conn ends.
func TestIPCRegions(t *testing.T) {
	base := mappings(t)
	src, dst := newPool(t, "shared"), newPool(t, "host")
	client, server := ipcPair(t, quiet())
	greet(t, client, server)
	for i := range 20 {
		s, want := filled(t, src, 100_000, byte(i))
		move(t, client, server, s, alloc(t, dst, 100_000), want)
	}
	require.Equal(t, base+4, mappings(t), "the region and the board, on both sides")
	closeBoth(client, server)
	require.LessOrEqual(t, mappings(t), base+2, "this side's own remain")
}

// mappings counts the memfds that this process maps.
func mappings(t testing.TB) int {
	t.Helper()
	b, err := os.ReadFile("/proc/self/maps")
	require.NoError(t, err)
	return strings.Count(string(b), "/memfd:gdrpc-")
}

// TestIPCRegionFreed: the peer unmaps a region before its owner's pool is gone.
func TestIPCRegionFreed(t *testing.T) {
	dev := pools["shared"](t)
	src, err := gpubuf.NewPool(gpubuf.Config{Device: dev})
	require.NoError(t, err)
	client, server := ipcPair(t, quiet())
	greet(t, client, server)
	data := bytes.Repeat([]byte{7}, 50_000)
	s, err := src.Alloc(context.Background(), int64(len(data)))
	require.NoError(t, err)
	require.NoError(t, s.CopyIn(0, data))
	require.Equal(t, PathIPC, move(t, client, server, s, alloc(t, newPool(t, "host"), len(data)), data))
	require.Equal(t, 1, imports(server))
	s.Free()
	require.NoError(t, src.Close())
	require.NoError(t, dev.Close())
	require.Eventually(t, func() bool { return imports(server) == 0 }, patience, tick)
	require.Empty(t, client.Stats().IPC)
}

func imports(c *Conn) int {
	c.ipc.mu.Lock()
	defer c.ipc.mu.Unlock()
	return len(c.ipc.imports)
}

// TestIPCWithdraw overwrites the source as soon as Withdraw has returned: a
// landing either has the bytes of before, all of them, or fails.
func TestIPCWithdraw(t *testing.T) {
	const size = 3 << 20
	for _, kind := range []string{"shared", "emu"} {
		t.Run(kind, func(t *testing.T) {
			src, dst := newPool(t, kind), newPool(t, "host")
			client, server := ipcPair(t, quiet())
			greet(t, client, server)
			s, err := src.Alloc(t.Context(), size)
			require.NoError(t, err)
			defer s.Free()
			d := alloc(t, dst, size)
			landed, failed := 0, 0
			for i := range 100 {
				want := bytes.Repeat([]byte{byte(i)}, size)
				require.NoError(t, s.CopyIn(0, want))
				o := offer(t, client, s)
				l := server.LandFrom(o.Token(), o.Flags(), client.Place(o), d)
				done, begin := make(chan error), make(chan struct{})
				go func() {
					<-begin
					done <- l.Wait(context.Background())
				}()
				switch i % 40 {
				case 0: // before the copy
					o.Withdraw()
					close(begin)
				case 39: // after it
					close(begin)
					<-l.done
				default: // as it comes
					close(begin)
					for range i % 40 * 50 {
						server.Stats()
					}
				}
				o.Withdraw()
				<-o.Drained()
				require.NoError(t, s.CopyIn(0, bytes.Repeat([]byte{^byte(i)}, size)))
				if err := <-done; err != nil {
					require.Regexp(t, "refused|aborted", err) // aborted: the sender was asked while it withdrew
					failed++
				} else {
					requireBytes(t, want, d)
					landed++
				}
				<-l.Consumed()
			}
			require.NotZero(t, landed)
			require.NotZero(t, failed)
		})
	}
}

// TestIPCCancel: a copy ends soon after its context, and dst is free then.
func TestIPCCancel(t *testing.T) {
	const size = 64 << 20
	src, dst := newPool(t, "emu"), newPool(t, "host")
	client, server := ipcPair(t, quiet())
	greet(t, client, server)
	s, want := filled(t, src, size, 1)
	d := alloc(t, dst, size)
	for range 10 {
		o := offer(t, client, s)
		ctx, cancel := context.WithCancel(context.Background())
		l := server.LandFrom(o.Token(), o.Flags(), client.Place(o), d)
		go cancel()
		if err := l.Wait(ctx); err != nil {
			require.ErrorIs(t, err, context.Canceled)
		}
		<-l.Consumed()
		o.Withdraw()
		<-o.Drained()
	}
	require.Equal(t, PathIPC, move(t, client, server, s, d, want))
}

// TestIPCOutside: a place that its region does not hold fails the landing.
func TestIPCOutside(t *testing.T) {
	pool := newPool(t, "shared")
	client, server := ipcPair(t, quiet())
	greet(t, client, server)
	s, want := filled(t, pool, 100_000, 1)
	o := offer(t, client, s)
	defer o.Withdraw()
	good := client.Place(o)
	for _, off := range []int64{-1, s.Region().Size() - 99_999, 1 << 62} {
		p := good
		p.Offset = off
		require.ErrorContains(t, server.LandFrom(o.Token(), o.Flags(), p, alloc(t, pool, 100_000)).Wait(soon(t)), "outside region")
	}
	require.Equal(t, PathIPC, move(t, client, server, s, alloc(t, pool, 100_000), want))
}

// TestIPCStale: a place whose word says otherwise is not believed; the sender
// is asked, and knows better.
func TestIPCStale(t *testing.T) {
	pool := newPool(t, "shared")
	client, server := ipcPair(t, quiet())
	greet(t, client, server)
	s, want := filled(t, pool, 100_000, 1)
	o := offer(t, client, s)
	defer o.Withdraw()
	good := client.Place(o)
	for _, p := range []Place{
		{Region: good.Region, Offset: good.Offset, Slot: good.Slot, Generation: good.Generation + 1},
		{Region: good.Region, Offset: good.Offset, Slot: good.Slot + 1, Generation: good.Generation},
		{Region: good.Region, Offset: good.Offset, Slot: 1 << 31, Generation: good.Generation},
	} {
		d := alloc(t, pool, 100_000)
		l := server.LandFrom(o.Token(), o.Flags(), p, d)
		require.NoError(t, l.Wait(soon(t)))
		require.Equal(t, PathSoft, l.Path())
		requireBytes(t, want, d)
		require.Equal(t, errRetracted.Error(), server.Stats().NotIPC)
	}
}

// TestIPCLate: a region that never comes costs its landings a bounded wait.
func TestIPCLate(t *testing.T) {
	pool := newPool(t, "shared")
	client, server := ipcPair(t, quiet())
	greet(t, client, server)
	s, want := filled(t, pool, 100_000, 1)
	o := offer(t, client, s)
	defer o.Withdraw()
	p := client.Place(o)
	p.Region = 1 << 40
	server.ipc.patience = 20 * time.Millisecond
	d := alloc(t, pool, 100_000)
	l := server.LandFrom(o.Token(), o.Flags(), p, d)
	require.NoError(t, l.Wait(soon(t)))
	require.Equal(t, PathSoft, l.Path())
	requireBytes(t, want, d)
	require.Equal(t, errRegionLate.Error(), server.Stats().NotIPC)
}

// TestIPCOtherBoard: an offer that was placed through one Domain is landed
// through another, as when grpc replays a message on another connection.
func TestIPCOtherBoard(t *testing.T) {
	pool := newPool(t, "shared")
	client, server := ipcPair(t, quiet())
	client2, server2 := ipcPair(t, quiet())
	greet(t, client, server)
	greet(t, client2, server2)
	s, want := filled(t, pool, 100_000, 1)
	o := offer(t, client, s)
	defer o.Withdraw()
	p := client.Place(o)
	require.NoError(t, client2.AddOffer(o))
	require.Zero(t, client2.Place(o))
	d := alloc(t, pool, 100_000)
	l := server2.LandFrom(o.Token(), o.Flags(), p, d)
	require.NoError(t, l.Wait(soon(t)))
	require.Equal(t, PathSoft, l.Path())
	requireBytes(t, want, d)
}

// TestIPCPending lands before it is known whether there is shared memory: what
// comes in time is used, and a socket that never comes costs a bounded wait.
func TestIPCPending(t *testing.T) {
	pool := newPool(t, "shared")
	s, want := filled(t, pool, 100_000, 1)
	for path, tries := PathNone, 1; path != PathIPC; tries++ {
		require.LessOrEqual(t, tries, 10)
		client, server := sharedIPCPair(t, quiet())
		greet(t, client, server)
		o := offer(t, client, s)
		if path = moveFrom(t, server, o, client.Place(o), alloc(t, pool, 100_000), want); path != PathIPC {
			require.Equal(t, errRegionLate.Error(), server.Stats().NotIPC, "a machine that stood still")
		}
	}

	d := newDomain(t, quiet())
	setups := joinedSetups(t, d, 1)
	var err error
	setups[1].Invite, err = d.Invite() // nobody comes to it
	require.NoError(t, err)
	client, server := newPair(t, d, setups)
	greet(t, client, server)
	s, want = filled(t, pool, 100_000, 2)
	require.Equal(t, PathSoft, move(t, server, client, s, alloc(t, pool, 100_000), want))
	o := offer(t, client, s)
	l := server.LandFrom(o.Token(), o.Flags(), Place{Region: 1, Generation: 1}, alloc(t, pool, 100_000))
	require.NoError(t, l.Wait(soon(t)))
	require.Equal(t, PathSoft, l.Path())
	o.Withdraw()
	err = server.AwaitIPC(soon(t))
	require.ErrorContains(t, err, "has not come to the Unix socket for 5s")
	require.Eventually(t, func() bool { _, stands := d.ipc.find(setups[1].Invite.key.ID); return !stands }, patience, tick)
}

// TestIPCLost: the Unix socket is lost in the middle; landings go on by the
// lanes, and the maps are gone.
func TestIPCLost(t *testing.T) {
	pool := newPool(t, "emu")
	client, server := ipcPair(t, quiet())
	greet(t, client, server)
	s, want := filled(t, pool, 9<<20, 1)
	d := alloc(t, pool, 9<<20)
	require.Equal(t, PathIPC, move(t, client, server, s, d, want))
	o := offer(t, client, s)
	l := server.LandFrom(o.Token(), o.Flags(), client.Place(o), d)
	go client.ipc.lose(errors.New("cut"), true)
	require.NoError(t, l.Wait(soon(t)))
	<-l.Consumed()
	o.Withdraw()
	<-o.Drained()
	requireBytes(t, want, d)
	<-server.ipc.gone // one end's loss is enough
	require.Error(t, server.AwaitIPC(soon(t)))
	require.Zero(t, imports(server))
	require.Equal(t, PathSoft, move(t, client, server, s, d, want))
	require.Equal(t, "the peer has closed the Unix socket", server.Stats().IPC)
	require.Equal(t, "cut", client.Stats().IPC)
}

// TestIPCOff: Config.NoIPC refuses invitations.
func TestIPCOff(t *testing.T) {
	cfg := quiet()
	cfg.NoIPC = true
	d := newDomain(t, cfg)
	require.False(t, d.SharesMemory())
	_, err := d.Invite()
	require.ErrorIs(t, err, errNoIPC)
	cfg.Require = PathIPC
	_, err = NewDomain(cfg)
	require.ErrorContains(t, err, "Config.NoIPC")
}

// TestIPCLateEnded: a landing ends while it waits for a region that never comes.
func TestIPCLateEnded(t *testing.T) {
	for name, end := range map[string]func(c *Conn, l *Landing){
		"failed":    func(c *Conn, l *Landing) { c.fail(errors.New("test")) },
		"cancelled": func(c *Conn, l *Landing) { c.recv.cancel(l, errors.New("test")) },
	} {
		t.Run(name, func(t *testing.T) {
			pool := newPool(t, "shared")
			client, server := ipcPair(t, quiet())
			greet(t, client, server)
			s, _ := filled(t, pool, 100_000, 1)
			o := offer(t, client, s)
			defer o.Withdraw()
			p := client.Place(o)
			p.Region = 1 << 40
			d, err := pool.Alloc(t.Context(), 100_000)
			require.NoError(t, err)
			l := server.LandFrom(o.Token(), o.Flags(), p, d)
			d.Free() // the landing has a reference of its own
			done := make(chan error, 1)
			go func() { done <- l.Wait(context.Background()) }()
			require.Eventually(t, l.claimed.Load, patience, tick)
			end(server, l)
			require.Error(t, <-done)
			<-l.Consumed()
		})
	}
}
