package soft

import (
	"fmt"
	"io"
	"net"
	"testing"

	"github.com/gdrpc/gdrpc/ibverbs"
	"github.com/stretchr/testify/require"
)

// The two families move the same bytes over the same loopback TCP: once
// through queue pairs, once by a bare socket.

func BenchmarkSend(b *testing.B) {
	b.Run("64B-pingpong", func(b *testing.B) { benchPingPong(b, 64) })
	for _, size := range []int{64, 4 << 10, 64 << 10, 1 << 20} {
		b.Run(fmt.Sprintf("%dB-oneway", size), func(b *testing.B) { benchOneWay(b, size, false) })
	}
	b.Run("1048576B-oneway-shared", func(b *testing.B) { benchOneWay(b, 1<<20, true) })
}

func BenchmarkBareTCP(b *testing.B) {
	b.Run("64B-pingpong", func(b *testing.B) { bareRun(b, 64, 64) })
	for _, size := range []int{64, 4 << 10, 64 << 10, 1 << 20} {
		b.Run(fmt.Sprintf("%dB-oneway", size), func(b *testing.B) { bareRun(b, size, 0) })
	}
}

const benchDepth = 32

// drain posts receives into slots of size bytes and reposts n of them as they
// complete, calling each after every completion.
func drain(s *side, mem memory, size, n int, each func()) {
	wcs := make([]ibverbs.WC, benchDepth)
	recv := make([]ibverbs.RecvWR, 1)
	recv[0].SGList = make([]ibverbs.SGE, 1)
	for done := 0; done < n; {
		k := s.next(s.rcq, wcs)
		for _, wc := range wcs[:k] {
			if wc.Status != ibverbs.WCSuccess {
				s.t.Errorf("receive: %v", wc.Status)
				return
			}
			recv[0].WRID, recv[0].SGList[0] = wc.WRID, mem.sge(int(wc.WRID)*size, size)
			if _, err := s.qp.PostRecv(recv); err != nil {
				s.t.Errorf("post: %v", err)
				return
			}
			each()
		}
		done += k
	}
}

// fillRQ posts benchDepth receives.
func fillRQ(s *side, mem memory, size int) {
	for i := range benchDepth {
		s.recv(uint64(i), mem.sge(i*size, size))
	}
}

func benchPingPong(b *testing.B, size int) {
	x, y := tcpSides(b)
	mx, my := x.mem(2*benchDepth*size, ibverbs.AccessLocalWrite), y.mem(2*benchDepth*size, ibverbs.AccessLocalWrite)
	fillRQ(x, mx, size)
	fillRQ(y, my, size)
	b.ReportAllocs()
	b.SetBytes(int64(2 * size))
	b.ResetTimer()
	done := make(chan struct{})
	go func() {
		defer close(done)
		drain(y, my, size, b.N, func() { y.sendOne(my.sge(benchDepth*size, size)) })
	}()
	x.sendOne(mx.sge(benchDepth*size, size))
	left := b.N
	drain(x, mx, size, b.N, func() {
		if left--; left > 0 {
			x.sendOne(mx.sge(benchDepth*size, size))
		}
	})
	<-done
}

// benchOneWay keeps the receiver's credits in a channel, as a transport does.
// On a shared wire there is an idle queue pair too, and messages go in
// fragments.
func benchOneWay(b *testing.B, size int, shared bool) {
	x, y := tcpSides(b)
	if shared {
		x.newQP(x.qp.port.wire)
	}
	mx, my := x.mem(size, 0), y.mem(benchDepth*size, ibverbs.AccessLocalWrite)
	fillRQ(y, my, size)
	credits := make(chan struct{}, benchDepth)
	for range benchDepth {
		credits <- struct{}{}
	}
	b.ReportAllocs()
	b.SetBytes(int64(size))
	b.ResetTimer()
	done := make(chan struct{})
	go func() {
		defer close(done)
		drain(y, my, size, b.N, func() { credits <- struct{}{} })
	}()
	for range b.N {
		<-credits
		x.sendOne(mx.sge(0, size))
	}
	<-done
}

// bareRun writes messages of size bytes and waits for replies of the given
// size, if any.
func bareRun(b *testing.B, size, reply int) {
	x, y := tcpPair(b)
	defer x.Close()
	defer y.Close()
	b.ReportAllocs()
	b.SetBytes(int64(size + reply))
	b.ResetTimer()
	done := make(chan error)
	go func() { done <- bareReceive(y, size, reply, b.N) }()
	out, in := make([]byte, size), make([]byte, reply)
	for range b.N {
		_, err := x.Write(out)
		require.NoError(b, err)
		_, err = io.ReadFull(x, in)
		require.NoError(b, err)
	}
	require.NoError(b, <-done)
}

func bareReceive(c net.Conn, size, reply, n int) error {
	in, out := make([]byte, size), make([]byte, reply)
	for range n {
		if _, err := io.ReadFull(c, in); err != nil {
			return err
		}
		if reply > 0 {
			if _, err := c.Write(out); err != nil {
				return err
			}
		}
	}
	return nil
}
