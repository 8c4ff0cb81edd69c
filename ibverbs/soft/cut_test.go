package soft

import (
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gdrpc/gdrpc/ibverbs"
	"github.com/gdrpc/gdrpc/ibverbs/soft/faultconn"
	"github.com/stretchr/testify/require"
)

// faultyPair returns two connected sides; the stream of the first has faults.
func faultyPair(t *testing.T, s faultconn.Script) (a, b *side, c *faultconn.Conn) {
	ca, cb := net.Pipe()
	c = faultconn.Wrap(ca, s)
	a, b = sides(t, nil, NewWire(c), NewWire(cb))
	return a, b, c
}

// TestCutAnywhere cuts the stream at every byte of an exchange, in each
// direction. Every request of both sides completes, and what a receive reports
// has arrived.
func TestCutAnywhere(t *testing.T) {
	const size = 30
	for n := int64(0); n <= 2*(headerSize+size); n++ {
		for _, s := range []faultconn.Script{{Write: faultconn.CutAt(n)}, {Read: faultconn.CutAt(n)}} {
			synctest.Test(t, func(t *testing.T) {
				a, b, _ := faultyPair(t, s)
				for _, e := range []*side{a, b} {
					src, dst := e.mem(size, 0), e.mem(2*size, ibverbs.AccessLocalWrite)
					copy(src.buf, "thirty bytes, neither more nor")
					for i := range 3 {
						e.recv(uint64(i), dst.sge(min(i, 1)*size, size))
					}
					e.send(10, ibverbs.SendSignaled, src.sge(0, size))
					e.send(11, ibverbs.SendSignaled, src.sge(0, size))
					synctest.Wait()
				}
				require.NoError(t, a.qp.port.wire.Close())
				<-b.qp.port.wire.Done()
				for _, e := range []*side{a, b} {
					e.send(12, 0)
					sends, recvs := e.await(e.scq, 3), e.await(e.rcq, 3)
					require.Equal(t, ibverbs.WCWRFlushErr, sends[2].Status)
					for i, wc := range recvs {
						require.Equal(t, uint64(i), wc.WRID)
						require.True(t, wc.Status == ibverbs.WCWRFlushErr || wc.ByteLen == size, "%+v", wc)
					}
				}
			})
		}
	}
}

// TestStalledWire stalls the stream in the middle of a message: the receiver
// gets its memory back at once, the sender after the stall timeout.
func TestStalledWire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, _ := faultyPair(t, faultconn.Script{Write: faultconn.StallAt(1000)})
		src, dst := a.mem(4096, 0), b.mem(4096, ibverbs.AccessLocalWrite)
		b.recv(1, dst.sge(0, 4096))
		a.send(2, 0, src.sge(0, 4096))
		synctest.Wait()
		start := time.Now()
		toErr(t, b.qp)
		require.Equal(t, ibverbs.WCWRFlushErr, b.await(b.rcq, 1)[0].Status)
		require.Zero(t, time.Since(start))
		synctest.Wait() // b's refusal is there, the write is not back
		require.Equal(t, ibverbs.QPErr, a.qp.State())
		require.Equal(t, ibverbs.WCRetryExcErr, a.await(a.scq, 1)[0].Status)
		require.Equal(t, time.Second, time.Since(start))
	})
}

// TestResumedWire checks that a wire survives a stall.
func TestResumedWire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, c := faultyPair(t, faultconn.Script{Write: faultconn.StallAt(1000)})
		src, dst := a.mem(4096, 0), b.mem(4096, ibverbs.AccessLocalWrite)
		copy(src.buf[4000:], "the end")
		b.recv(1, dst.sge(0, 4096))
		a.send(2, 0, src.sge(0, 4096))
		time.AfterFunc(time.Hour, c.Resume)
		require.Equal(t, ibverbs.WCSuccess, b.await(b.rcq, 1)[0].Status)
		require.Equal(t, src.buf, dst.buf)
	})
}
