package conn

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/gpubuf/emu"
	"github.com/gdrpc/gdrpc/gpubuf/faultdev"
	"github.com/gdrpc/gdrpc/ibverbs"
	"github.com/stretchr/testify/require"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// summing is a configuration that compares checksums.
func summing() *Config {
	cfg := quiet()
	cfg.Checksums = true
	return cfg
}

func TestSums(t *testing.T) {
	sizes := []int{0, 1, 300, 65537, 1<<20 + 1, 5<<20 - 1}
	for _, p := range pairs {
		for _, kinds := range [][2]string{{"host", "host"}, {"emu", "emu"}, {"host", "emu"}, {"emu", "host"}} {
			t.Run(fmt.Sprintf("%s/%s to %s", p.name, kinds[0], kinds[1]), func(t *testing.T) {
				src, dst := newPool(t, kinds[0]), newPool(t, kinds[1])
				client, server := p.make(t, summing())
				greet(t, client, server)
				for i, size := range sizes {
					s, want := filled(t, src, size, byte(i))
					land(t, client, server, s, alloc(t, dst, size), want)
					land(t, server, client, s, alloc(t, dst, size), want)
				}
				s, want := filled(t, src, 20000, 77)
				pushAndLand(t, client, server, s, alloc(t, dst, 20000), want)
				require.EqualValues(t, 1, client.Stats().Pushed)
				for c, n := range map[*Conn]int{server: len(sizes), client: len(sizes) - 1} { // none for no bytes
					st := c.Stats()
					require.True(t, st.Checksums)
					require.EqualValues(t, n, st.SumsEqual)
					require.Zero(t, st.SumsFailed)
				}
			})
		}
	}
}

// TestSumShared lands one offer many times at once, before and after its sum is
// known, and an offer whose source is late.
func TestSumShared(t *testing.T) {
	pool := newPool(t, "emu")
	client, server := memPair(t, summing())
	greet(t, client, server)
	s, want := filled(t, pool, 700_000, 1)
	o, e := pending(t, client, s)
	for range 2 {
		var landings []*Landing
		var slices []*gpubuf.Slice
		for range 5 {
			dst := alloc(t, pool, 700_000)
			slices = append(slices, dst)
			landings = append(landings, server.Land(o.Token(), o.Flags(), dst))
		}
		e.Fire(nil)
		for i, l := range landings {
			require.NoError(t, l.Wait(soon(t)))
			requireBytes(t, want, slices[i])
		}
	}
	require.EqualValues(t, 10, server.Stats().SumsEqual)
	o.Withdraw()
	<-o.Drained()
}

// sumsTo returns 4 bytes that make the checksum of b and them sum: it runs the
// register backwards over 32 bits.
func sumsTo(b []byte, sum uint32) []byte {
	r := ^sum
	for range 32 {
		if r>>31 == 1 {
			r = (r^crc32.Castagnoli)<<1 | 1
		} else {
			r <<= 1
		}
	}
	return binary.LittleEndian.AppendUint32(nil, r^^crc32.Checksum(b, castagnoli))
}

// TestSumZero lands bytes whose checksum is 0, by request and by push: it is a
// value like any other.
func TestSumZero(t *testing.T) {
	for _, kind := range []string{"host", "emu"} {
		t.Run(kind, func(t *testing.T) {
			pool := newPool(t, kind)
			client, server := memPair(t, summing())
			greet(t, client, server)
			s, want := filled(t, pool, 1000, 1)
			copy(want[996:], sumsTo(want[:996], 0))
			require.Zero(t, crc32.Checksum(want, castagnoli))
			require.NoError(t, s.CopyIn(0, want))
			land(t, client, server, s, alloc(t, pool, 1000), want)
			pushAndLand(t, client, server, s, alloc(t, pool, 1000), want)
			require.EqualValues(t, 2, server.Stats().SumsEqual)
		})
	}
}

// tampered is a socket on whose way a byte changes.
type tampered struct {
	net.Conn
	at   atomic.Int64 // how far away the byte is; negative: behind
	flip byte
}

func (c *tampered) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	at := c.at.Add(-int64(n)) + int64(n)
	if at >= 0 && at < int64(n) {
		b[at] ^= c.flip
	}
	return n, err
}

// tamperedPair is a pair whose bulk lane changes one byte towards the server.
func tamperedPair(t testing.TB, cfg *Config, at int64) (client, server *Conn) {
	d := newDomain(t, cfg)
	stream := socketPair(t)
	setups := [2]Setup{}
	control, bulk := twoLanes(t, d, LaneControl), twoLanes(t, d, LaneBulk)
	ways := [2][2]net.Conn{socketPair(t), socketPair(t)}
	bad := &tampered{Conn: ways[1][1], flip: 0x10}
	bad.at.Store(at)
	ways[1][1] = bad
	for i := range setups {
		require.NoError(t, control[i].Attach(ways[0][i], control[1-i].QPInfo()))
		require.NoError(t, bulk[i].Attach(ways[1][i], bulk[1-i].QPInfo()))
		setups[i] = Setup{
			Stream: stream[i], Mode: ModeSoftJoined, Client: i == 0, Gdrpc: true, Checksums: cfg.Checksums,
			Peer: d.Limits(), Control: control[i], Bulk: []*Lane{bulk[i]},
		}
	}
	return newPair(t, d, setups)
}

// TestSumTampered changes a byte on the wire: without checksums nobody notices.
func TestSumTampered(t *testing.T) {
	for _, kind := range []string{"host", "emu"} {
		for _, cfg := range []*Config{quiet(), summing()} {
			t.Run(fmt.Sprintf("%s checksums %v", kind, cfg.Checksums), func(t *testing.T) {
				pool := newPool(t, kind)
				client, server := tamperedPair(t, cfg, 150_000)
				greet(t, client, server)
				s, want := filled(t, pool, 200_000, 1)
				o := offer(t, client, s)
				dst := alloc(t, pool, 200_000)
				l := server.Land(o.Token(), o.Flags(), dst)
				err := l.Wait(soon(t))
				<-l.Consumed()
				got := bytesOf(t, dst)
				require.NotEqual(t, want, got)
				if cfg.Checksums {
					require.ErrorIs(t, err, ErrChecksum)
					require.ErrorContains(t, err, fmt.Sprintf("the source has %08x, what landed %08x (200000 bytes)",
						crc32.Checksum(want, castagnoli), crc32.Checksum(got, castagnoli)))
					require.EqualValues(t, 1, server.Stats().SumsFailed)
					land(t, client, server, s, dst, want) // the next one is whole
				} else {
					require.NoError(t, err)
				}
				o.Withdraw()
				<-o.Drained()
			})
		}
	}
}

// TestSumNotSupported lands from and to a device that cannot sum.
func TestSumNotSupported(t *testing.T) {
	dumb := func(t *testing.T) *gpubuf.Pool {
		d, err := emu.New(nil)
		require.NoError(t, err)
		p, err := gpubuf.NewPool(gpubuf.Config{Device: faultdev.Wrap(d, nil)})
		require.NoError(t, err)
		t.Cleanup(func() {
			require.NoError(t, p.Close())
			require.NoError(t, d.Close())
		})
		return p
	}
	for name, tc := range map[string]struct {
		from, to func(t *testing.T) *gpubuf.Pool
		err      string
	}{
		"source":      {dumb, func(t *testing.T) *gpubuf.Pool { return newPool(t, "emu") }, "the peer cannot compute its source's"},
		"destination": {func(t *testing.T) *gpubuf.Pool { return newPool(t, "emu") }, dumb, "not supported: the device computes no checksums"},
	} {
		t.Run(name, func(t *testing.T) {
			client, server := memPair(t, summing())
			greet(t, client, server)
			s, _ := filled(t, tc.from(t), 5000, 1)
			o := offer(t, client, s)
			require.Equal(t, name == "destination", client.Push(o), "what cannot be summed is not pushed")
			l := server.Land(o.Token(), o.Flags()|OfferPushed, alloc(t, tc.to(t), 5000))
			err := l.Wait(soon(t))
			require.ErrorIs(t, err, ErrChecksum)
			require.ErrorContains(t, err, tc.err)
			<-l.Consumed()
			require.EqualValues(t, 1, server.Stats().SumsFailed)
			o.Withdraw()
			<-o.Drained()
		})
	}
}

// TestSumWithdrawn is told that the offer is gone, which says nothing about its
// bytes.
func TestSumWithdrawn(t *testing.T) {
	pool := newPool(t, "host")
	client, server := memPair(t, summing())
	greet(t, client, server)
	l := server.Land(NewToken(), 0, alloc(t, pool, 100))
	err := l.Wait(soon(t))
	require.ErrorContains(t, err, "refused")
	require.NotErrorIs(t, err, ErrChecksum)
	<-l.Consumed()
	require.Zero(t, server.Stats().SumsFailed)
	_ = client
}

// slow is an emulated GPU whose sums take until it is told.
type slow struct {
	*emu.Device
	began, end chan struct{}
}

func (d *slow) CRC32C(p gpubuf.DevicePtr, n int64) (uint32, error) {
	d.began <- struct{}{}
	<-d.end
	return d.Device.CRC32C(p, n)
}

func newSlow(t *testing.T) (*slow, *gpubuf.Pool) {
	below, err := emu.New(nil)
	require.NoError(t, err)
	d := &slow{below, make(chan struct{}), make(chan struct{})}
	p, err := gpubuf.NewPool(gpubuf.Config{Device: d})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, p.Close())
		require.NoError(t, d.Close())
	})
	return d, p
}

// TestSumCancel cancels a landing whose destination is being summed: the memory
// stays in use until that is over. The source likewise.
func TestSumCancel(t *testing.T) {
	t.Run("destination", func(t *testing.T) {
		d, p := newSlow(t)
		client, server := memPair(t, summing())
		greet(t, client, server)
		s, _ := filled(t, newPool(t, "host"), 1000, 1)
		o := offer(t, client, s)
		ctx, cancel := context.WithCancel(context.Background())
		l := server.Land(o.Token(), o.Flags(), alloc(t, p, 1000))
		<-d.began
		cancel()
		require.ErrorIs(t, l.Wait(ctx), context.Canceled)
		select {
		case <-l.Consumed():
			require.Fail(t, "the destination is still being read")
		default:
		}
		close(d.end)
		<-l.Consumed()
		o.Withdraw()
		<-o.Drained()
	})
	t.Run("source", func(t *testing.T) {
		d, p := newSlow(t)
		client, server := memPair(t, summing())
		greet(t, client, server)
		s, _ := filled(t, p, 1000, 1)
		o := offer(t, client, s)
		l := server.Land(o.Token(), o.Flags(), alloc(t, newPool(t, "host"), 1000))
		<-d.began
		o.Withdraw()
		select {
		case <-o.Drained():
			require.Fail(t, "the source is still being read")
		default:
		}
		close(d.end)
		<-o.Drained()
		_ = l.Wait(soon(t)) // whole, or refused, as it comes
		<-l.Consumed()
	})
}

// TestSumClose closes a Conn while a sum is computed, which waits for that.
func TestSumClose(t *testing.T) {
	d, p := newSlow(t)
	client, server := memPair(t, summing())
	greet(t, client, server)
	s, _ := filled(t, newPool(t, "host"), 1000, 1)
	o := offer(t, client, s)
	dst := alloc(t, p, 1000)
	l := server.Land(o.Token(), o.Flags(), dst)
	<-d.began
	server.fail(net.ErrClosed)
	require.ErrorIs(t, l.Wait(soon(t)), net.ErrClosed)
	select {
	case <-server.ending.done:
		require.Fail(t, "closed while the destination is being read")
	case <-l.Consumed():
		require.Fail(t, "the destination is still being read")
	default:
	}
	close(d.end)
	<-l.Consumed()
	<-server.ending.done
	o.Withdraw()
	<-o.Drained()
}

// TestRogueSums answers requests for sums with anything but the truth.
func TestRogueSums(t *testing.T) {
	for name, tc := range map[string]struct {
		answer func(r *rogue, token Token)
		err    string
		sums   bool // ErrChecksum
	}{
		"no answer": {func(*rogue, Token) {}, "the source's did not arrive for 50ms", true},
		"zero":      {func(r *rogue, token Token) { r.frame(frame{typ: frameSum, token: token}) }, "the source has 00000000, what landed 8a9136aa (32 bytes)", true},
		"another":   {func(r *rogue, token Token) { r.frame(frame{typ: frameSum, token: token, id: 0x8a9136ab}) }, "the source has 8a9136ab, what landed 8a9136aa (32 bytes)", true},
		"failed with the right sum": {func(r *rogue, token Token) {
			r.frame(frame{typ: frameSum, token: token, status: bulkFailed, id: 0x8a9136aa})
		}, "the peer cannot compute its source's", true},
		"unknown status": {func(r *rogue, token Token) {
			r.frame(frame{typ: frameSum, token: token, status: 99, id: 0x8a9136aa})
		}, "the peer cannot compute its source's", true},
		"refused":          {func(r *rogue, token Token) { r.frame(frame{typ: frameSum, token: token, status: bulkRefused}) }, "refused", false},
		"of another offer": {func(r *rogue, token Token) { r.frame(frame{typ: frameSum, token: NewToken(), id: 0x8a9136aa}) }, "did not arrive", true},
		"the truth":        {func(r *rogue, token Token) { r.frame(frame{typ: frameSum, token: token, id: 0x8a9136aa}) }, "", false},
	} {
		bubble(t, name, func(t *testing.T) {
			cfg := summing()
			cfg.LandingTimeout = 50 * time.Millisecond
			r, server := newRogue(t, cfg)
			token := NewToken()
			l := server.Land(token, 0, alloc(t, newPool(t, "host"), 32))
			asked, request := r.next(), r.next()
			require.Equal(t, frameSumRequest, asked.typ)
			require.Equal(t, token, asked.token)
			require.Equal(t, frameRequest, request.typ)
			sge, err := r.bulk.nic.regions.sge(r.source, 0, 32) // zeros
			require.NoError(t, err)
			require.NoError(t, r.bulk.postSend(0, sge, ibverbs.WRSendWithImm, bulkImm(request.id, bulkData)))
			tc.answer(r, token)
			err = l.Wait(soon(t))
			<-l.Consumed()
			if tc.err == "" {
				require.NoError(t, err)
				require.EqualValues(t, 1, server.Stats().SumsEqual)
				return
			}
			require.ErrorContains(t, err, tc.err)
			require.Equal(t, tc.sums, server.Stats().SumsFailed == 1, "%v", err)
			require.NoError(t, server.Offload(), "only the landing failed")
		})
	}
	t.Run("asks where none were agreed", func(t *testing.T) {
		r, server := newRogue(t, quiet())
		r.frame(frame{typ: frameSumRequest})
		requireReset(t, server, "Hello had none agreed")
	})
	t.Run("pushes a wrong one", func(t *testing.T) {
		r, server := newRogue(t, summing())
		token := NewToken()
		l := server.Land(token, OfferPushed, alloc(t, newPool(t, "emu"), 32))
		r.push(token, 4+32) // a sum of zero, and zeros
		require.ErrorContains(t, l.Wait(soon(t)), "the source has 00000000, what landed 8a9136aa (32 bytes)")
		<-l.Consumed()
	})
	t.Run("pushes a sum alone", func(t *testing.T) {
		r, server := newRogue(t, summing())
		r.push(NewToken(), 4)
		requireReset(t, server, "message of 20 bytes")
	})
}

// bubble runs a test in which no time passes while anybody has something to do.
func bubble(t *testing.T, name string, f func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { synctest.Test(t, f) })
}

// next takes the next frame that comes.
func (r *rogue) next() frame {
	for {
		wc := <-r.events
		require.Equal(r.t, ibverbs.WCSuccess, wc.Status)
		f, err := decodeFrame(r.control.recvBlock(int(wc.WRID &^ wridRecv))[:wc.ByteLen])
		require.NoError(r.t, err)
		if f.typ != frameCredit {
			return f
		}
	}
}

// TestSumRequestsFlood asks for the sum of one offer without end: it is computed
// once, and the peer that takes no answers loses the Conn.
func TestSumRequestsFlood(t *testing.T) {
	r, server := newRogue(t, summing())
	s, _ := filled(t, newPool(t, "host"), 1000, 1)
	o := offer(t, server, s)
	r.ask(server, frame{typ: frameSumRequest, token: o.Token()})
	requireReset(t, server, "asks but takes no answers")
	o.Withdraw()
	<-o.Drained()
}

// forgetful is an emulated GPU whose memory loses a bit before it is summed.
type forgetful struct{ *emu.Device }

func (d forgetful) CRC32C(p gpubuf.DevicePtr, n int64) (uint32, error) {
	sum, err := d.Device.CRC32C(p, n)
	return sum ^ 1, err
}

// TestSumIPC compares what was read from shared memory too.
func TestSumIPC(t *testing.T) {
	for _, kinds := range [][2]string{{"shared", "emu"}, {"emu", "host"}, {"emu", "emu"}} {
		t.Run(kinds[0]+" to "+kinds[1], func(t *testing.T) {
			src, dst := newPool(t, kinds[0]), newPool(t, kinds[1])
			client, server := ipcPair(t, summing())
			greet(t, client, server)
			s, want := filled(t, src, 300_001, 1)
			for range 3 {
				require.Equal(t, PathIPC, move(t, client, server, s, alloc(t, dst, 300_001), want))
			}
			require.EqualValues(t, 3, server.Stats().SumsEqual)
		})
	}
	t.Run("memory that forgets", func(t *testing.T) {
		below, err := emu.New(nil)
		require.NoError(t, err)
		pool, err := gpubuf.NewPool(gpubuf.Config{Device: forgetful{below}})
		require.NoError(t, err)
		t.Cleanup(func() {
			require.NoError(t, pool.Close())
			require.NoError(t, below.Close())
		})
		client, server := ipcPair(t, summing())
		greet(t, client, server)
		s, _ := filled(t, newPool(t, "shared"), 1000, 1)
		o := offer(t, client, s)
		l := server.LandFrom(o.Token(), o.Flags(), client.Place(o), alloc(t, pool, 1000))
		require.ErrorIs(t, l.Wait(soon(t)), ErrChecksum)
		<-l.Consumed()
		require.EqualValues(t, 1, server.Stats().SumsFailed)
		require.Zero(t, client.Stats().BytesServed)
		o.Withdraw()
		<-o.Drained()
	})
}
