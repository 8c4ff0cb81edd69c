package conn

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/gpubuf/emu"
	"github.com/gdrpc/gdrpc/gpubuf/faultdev"
	"github.com/gdrpc/gdrpc/gpubuf/host"
	"github.com/stretchr/testify/require"
)

// stagedBlock and stagedBlocks are small, so that little memory has many chunks.
const (
	stagedBlock  = 4 << 10
	stagedBlocks = 4
	stagedChunks = 10
	stagedSize   = stagedChunks * stagedBlock
)

func stagedConfig() *Config {
	cfg := quiet()
	cfg.StagingBlock, cfg.StagingBlocks = stagedBlock, stagedBlocks
	return cfg
}

// staged is a pair in memory between a source and a destination of which each
// side can be a device with scripted background copies.
type staged struct {
	client, server *Conn
	src, dst       *gpubuf.Slice
	want           []byte
	from, to       *faultdev.PinnedDevice // nil for host memory
}

// newStaged makes one. A nil script stands for host memory.
func newStaged(t *testing.T, from, to *faultdev.Script) *staged {
	s := new(staged)
	pools := make([]*gpubuf.Pool, 2)
	for i, script := range []*faultdev.Script{from, to} {
		if script == nil {
			pools[i] = newPool(t, "host")
			continue
		}
		below, err := emu.NewAsync(nil, nil)
		require.NoError(t, err)
		dev := faultdev.WrapPinned(below, script)
		if pools[i] = poolOf(t, dev); i == 0 {
			s.from = dev
		} else {
			s.to = dev
		}
	}
	s.client, s.server = memPair(t, stagedConfig())
	greet(t, s.client, s.server)
	s.src, s.want = filled(t, pools[0], stagedSize, 1)
	s.dst = alloc(t, pools[1], stagedSize)
	return s
}

// requireIdle holds both sides to having everything back.
func (s *staged) requireIdle(t *testing.T) {
	t.Helper()
	require.Empty(t, idleFaults(s.client, s.server))
	require.Empty(t, idleFaults(s.server, s.client))
}

// TestStagedInFlight has as many copies under way on a side as it has blocks,
// without waiting for any of them.
func TestStagedInFlight(t *testing.T) {
	slow := faultdev.Script{Latency: time.Second}
	t.Run("out", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := newStaged(t, &slow, nil)
			o := offer(t, s.client, s.src)
			l := s.server.Land(o.Token(), o.Flags(), s.dst)
			synctest.Wait() // no time has passed
			require.Equal(t, stagedBlocks, s.from.Calls(faultdev.OpStartCopyOut))
			start := time.Now()
			require.NoError(t, l.Wait(t.Context()))
			require.Equal(t, stagedChunks*time.Second, time.Since(start), "the engine was never idle")
			requireBytes(t, s.want, s.dst)
			o.Withdraw()
			<-o.Drained()
			synctest.Wait()
			s.requireIdle(t)
		})
	})
	t.Run("in", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := newStaged(t, nil, &slow)
			o := offer(t, s.client, s.src)
			l := s.server.Land(o.Token(), o.Flags(), s.dst)
			synctest.Wait()
			require.Equal(t, stagedBlocks, s.to.Calls(faultdev.OpStartCopyIn))
			select {
			case <-l.done:
				require.Fail(t, "landed before its copies are done")
			default:
			}
			start := time.Now()
			require.NoError(t, l.Wait(t.Context()))
			require.Equal(t, stagedChunks*time.Second, time.Since(start))
			<-l.Consumed()
			requireBytes(t, s.want, s.dst)
			o.Withdraw()
			<-o.Drained()
			synctest.Wait()
			s.requireIdle(t)
		})
	})
}

// TestStagedOrder has copies end in any order, by many seeds.
func TestStagedOrder(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var pools [2]*gpubuf.Pool
				for i := range pools {
					d, err := emu.NewAsync(nil, &emu.AsyncConfig{Delay: time.Second, Seed: 2*seed + uint64(i)})
					require.NoError(t, err)
					pools[i] = poolOf(t, d)
				}
				client, server := memPair(t, stagedConfig())
				greet(t, client, server)
				s, want := filled(t, pools[0], 3*stagedSize+777, byte(seed))
				land(t, client, server, s, alloc(t, pools[1], 3*stagedSize+777), want)
			})
		})
	}
}

// TestStagedCopyFails has each copy fail in turn, at its start and at its end. The
// landing fails with the reason, and the lane goes on.
func TestStagedCopyFails(t *testing.T) {
	for _, op := range []faultdev.Op{faultdev.OpStartCopyOut, faultdev.OpStartCopyIn, faultdev.OpWait} {
		for _, side := range []string{"source", "destination"} {
			if op == faultdev.OpStartCopyOut && side == "destination" || op == faultdev.OpStartCopyIn && side == "source" {
				continue
			}
			for n := 1; n <= stagedChunks; n++ {
				t.Run(fmt.Sprintf("%s/%s/%d", side, op, n), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) { testStagedCopyFails(t, side, op, n) })
				})
			}
		}
	}
}

func testStagedCopyFails(t *testing.T, side string, op faultdev.Op, n int) {
	fails := &faultdev.Script{Latency: time.Millisecond, Refuse: faultdev.Nth(op, n, nil)}
	works := &faultdev.Script{Latency: time.Millisecond}
	s := newStaged(t, fails, works)
	if side == "destination" {
		s = newStaged(t, works, fails)
	}
	o := offer(t, s.client, s.src)
	l := s.server.Land(o.Token(), o.Flags(), s.dst)
	err := l.Wait(t.Context())
	if side == "destination" {
		require.ErrorIs(t, err, faultdev.ErrRefused)
	} else {
		require.ErrorContains(t, err, bulkFailed.String())
	}
	<-l.Consumed()
	again := s.server.Land(o.Token(), o.Flags(), s.dst)
	require.NoError(t, again.Wait(t.Context()), "the second time, nothing is scripted")
	requireBytes(t, s.want, s.dst)
	o.Withdraw()
	<-o.Drained()
	synctest.Wait()
	s.requireIdle(t)
}

// TestStagedSlow has copies that take longer together than any bound of one.
func TestStagedSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := &faultdev.Script{Latency: 4 * time.Second}
		s := newStaged(t, slow, slow)
		o := offer(t, s.client, s.src)
		l := s.server.Land(o.Token(), o.Flags(), s.dst)
		start := time.Now()
		require.NoError(t, l.Wait(t.Context()))
		require.Greater(t, time.Since(start), s.client.d.cfg.LandingTimeout)
		requireBytes(t, s.want, s.dst)
		o.Withdraw()
		<-o.Drained()
	})
}

// TestStagedCancel cancels and withdraws during copies: the callers have their
// answer at once, and the memory when the copies have ended.
func TestStagedCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := &faultdev.Script{Latency: time.Second}
		s := newStaged(t, slow, slow)
		o := offer(t, s.client, s.src)
		l := s.server.Land(o.Token(), o.Flags(), s.dst)
		time.Sleep(1500 * time.Millisecond) // one copy in, others out, are under way
		require.Positive(t, s.to.Calls(faultdev.OpStartCopyIn))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		start := time.Now()
		require.ErrorIs(t, l.Wait(ctx), context.Canceled)
		o.Withdraw()
		require.Zero(t, time.Since(start))
		synctest.Wait()
		select {
		case <-l.Consumed():
			require.Fail(t, "consumed under a copy into it")
		case <-o.Drained():
			require.Fail(t, "drained under a copy out of it")
		default:
		}
		<-l.Consumed()
		require.Equal(t, s.to.Calls(faultdev.OpStartCopyIn), s.to.Calls(faultdev.OpWait))
		<-o.Drained()
		synctest.Wait()
		s.requireIdle(t)
		o = offer(t, s.client, s.src)
		land(t, s.client, s.server, s.src, s.dst, s.want)
		o.Withdraw()
	})
}

// TestStagedLease has a landing take longer than the offer's lease, which goes on
// for as long as the offer moves, and no longer.
func TestStagedLease(t *testing.T) {
	for _, times := range []int{1, 4} {
		synctest.Test(t, func(t *testing.T) {
			s := newStaged(t, &faultdev.Script{Latency: time.Second}, nil)
			const lease = stagedChunks * time.Second / 3
			o := offer(t, s.client, s.src)
			o.Lease(lease)
			start := time.Now()
			for range times {
				l := s.server.Land(o.Token(), o.Flags(), s.dst)
				if err := l.Wait(t.Context()); err != nil {
					require.Greater(t, time.Since(start), 2*stagedChunks*time.Second, "it was landed twice: %v", err)
				} else {
					requireBytes(t, s.want, s.dst)
				}
				<-l.Consumed()
			}
			<-o.Drained()
			require.Greater(t, time.Since(start), stagedChunks*time.Second)
			require.Less(t, time.Since(start), 3*stagedChunks*time.Second)
			synctest.Wait()
			s.requireIdle(t)
		})
	}
}

// TestStagedLaneLost loses the lanes during the copies of a side. Nothing is given
// back, and the Conns are not done, before the copies have ended.
func TestStagedLaneLost(t *testing.T) {
	slow := &faultdev.Script{Latency: 10 * time.Second}
	for name, scripts := range map[string][2]*faultdev.Script{"out": {slow, nil}, "in": {nil, slow}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { testStagedLaneLost(t, newStaged(t, scripts[0], scripts[1])) })
		})
	}
}

func testStagedLaneLost(t *testing.T, s *staged) {
	dev, op := s.from, faultdev.OpStartCopyOut
	if s.to != nil {
		dev, op = s.to, faultdev.OpStartCopyIn
	}
	o := offer(t, s.client, s.src)
	o.Lease(time.Hour)
	l := s.server.Land(o.Token(), o.Flags(), s.dst)
	time.Sleep(25 * time.Second)
	started := dev.Calls(op)
	require.Greater(t, started, 3, "two have ended, and others are under way")
	s.server.bulkLost(errors.New("pulled out"))
	require.ErrorIs(t, l.Wait(t.Context()), ErrLanesLost)
	closeBoth(s.client, s.server)
	for _, c := range []*Conn{s.client, s.server} {
		require.Zero(t, c.recv.rails[0].stager.held)
		require.Zero(t, c.send[0].stager.held)
	}
	<-l.Consumed()
	<-o.Drained()
	require.Equal(t, started, dev.Calls(op), "nothing is begun any more")
}

// gated is a device whose background copies do not end before the gate opens.
type gated struct {
	gpubuf.PinnedDevice
	started chan struct{}
	gate    chan struct{}
}

type gatedCopy struct {
	gpubuf.Copy
	gate chan struct{}
}

// StartCopyIn implements gpubuf.PinnedDevice.
func (d *gated) StartCopyIn(dst gpubuf.DevicePtr, src []byte) (gpubuf.Copy, error) {
	c, err := d.PinnedDevice.StartCopyIn(dst, src)
	d.started <- struct{}{}
	return gatedCopy{c, d.gate}, err
}

// Wait implements gpubuf.Copy.
func (c gatedCopy) Wait() error {
	<-c.gate
	return c.Copy.Wait()
}

// TestStagedQuota has every lane use all of its own blocks, and no more.
func TestStagedQuota(t *testing.T) {
	const lanes, size = 8, 8 * stagedSize
	below, err := emu.NewAsync(nil, nil)
	require.NoError(t, err)
	dev := &gated{PinnedDevice: below, started: make(chan struct{}, 1000), gate: make(chan struct{})}
	pool := poolOf(t, dev)
	client, server := joinedPair(t, stagedConfig(), lanes)
	greet(t, client, server)
	s, want := filled(t, newPool(t, "host"), size, 1)
	dst := alloc(t, pool, size)
	o := offer(t, client, s)
	l := server.Land(o.Token(), o.Flags(), dst)
	for range lanes * stagedBlocks {
		<-dev.started
	}
	full := func() bool { // a copy has started a moment before it is queued
		server.recv.mu.Lock()
		defer server.recv.mu.Unlock()
		return !slices.ContainsFunc(server.recv.rails, func(r *rail) bool {
			return r.stager.held != stagedBlocks || len(r.copies.queue) != stagedBlocks
		})
	}
	require.Eventually(t, full, patience, tick)
	require.Empty(t, dev.started)
	close(dev.gate)
	require.NoError(t, l.Wait(soon(t)))
	requireBytes(t, want, dst)
	o.Withdraw()
	<-o.Drained()
}

// TestPinnedFreed closes a device right behind the Conns that staged for it.
func TestPinnedFreed(t *testing.T) {
	dev, err := emu.NewAsync(nil, nil)
	require.NoError(t, err)
	pool, err := gpubuf.NewPool(gpubuf.Config{Device: dev})
	require.NoError(t, err)
	client, server := memPair(t, stagedConfig())
	greet(t, client, server)
	src, err := pool.Alloc(t.Context(), stagedSize)
	require.NoError(t, err)
	dst, err := pool.Alloc(t.Context(), stagedSize)
	require.NoError(t, err)
	o := offer(t, client, src)
	l := server.Land(o.Token(), o.Flags(), dst)
	require.NoError(t, l.Wait(soon(t)))
	<-l.Consumed()
	o.Withdraw()
	<-o.Drained()
	src.Free()
	dst.Free()
	require.NoError(t, pool.Close())
	require.ErrorContains(t, dev.Close(), "pinned", "blocks are kept for the next landing")
	require.NoError(t, client.Close())
	require.NoError(t, server.Close())
	require.NoError(t, dev.Close())
}

// scarce is a device whose pinned memory is another's.
type scarce struct {
	gpubuf.PinnedDevice
	pinned gpubuf.Device
}

// Pinned implements gpubuf.PinnedDevice.
func (d *scarce) Pinned() gpubuf.Device { return d.pinned }

// TestPinnedRefused has the device refuse pinned memory: landings fail with the
// reason, until there is some.
func TestPinnedRefused(t *testing.T) {
	below, err := emu.NewAsync(nil, nil)
	require.NoError(t, err)
	none := func(c faultdev.Call) error {
		if c.Op == faultdev.OpAlloc {
			return fmt.Errorf("memlock: %w", gpubuf.ErrOutOfMemory)
		}
		return nil
	}
	dev := &scarce{below, faultdev.Wrap(host.New(), &faultdev.Script{Refuse: none})}
	pool := poolOf(t, dev)
	client, server := memPair(t, stagedConfig())
	greet(t, client, server)
	s, _ := filled(t, newPool(t, "host"), stagedSize, 1)
	o := offer(t, client, s)
	for range 2 {
		l := server.Land(o.Token(), o.Flags(), alloc(t, pool, stagedSize))
		err = l.Wait(soon(t))
		require.ErrorIs(t, err, gpubuf.ErrOutOfMemory)
		require.ErrorContains(t, err, "memlock")
		<-l.Consumed()
	}
	o.Withdraw()
	<-o.Drained()
}
