package verbs

import (
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/gdrpc/gdrpc/ibverbs"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// The two families do what ib_send_bw and ib_send_lat of perftest do, so that
// what the provider adds shows beside them: see interop/rxe/bench.go. Both ends
// are in this process.

// BenchmarkSend sends messages one way and waits by events.
func BenchmarkSend(b *testing.B) {
	for _, size := range []int{64 << 10, 1 << 20} {
		b.Run(fmt.Sprintf("%dB", size), func(b *testing.B) { benchSend(b, size) })
	}
}

// BenchmarkPingPong sends a message there and back.
func BenchmarkPingPong(b *testing.B) {
	b.Run("polling", func(b *testing.B) { benchPingPong(b, false) })
	b.Run("events", func(b *testing.B) { benchPingPong(b, true) })
}

// The depths of perftest.
const (
	benchSends = 128
	benchRecvs = 512
)

// benchEnd is one end. All its requests name the whole of one buffer.
type benchEnd struct {
	qp     ibverbs.QP
	cq     ibverbs.CQ // of sends and receives
	ch     ibverbs.CompChannel
	sge    []ibverbs.SGE
	events bool // wait for events, rather than poll
	sent   int
}

// benchEnds connects two ends.
func benchEnds(b *testing.B, size int, events bool) (x, y *benchEnd) {
	f := requireFabric(b)
	x, y = newBenchEnd(b, f, size, events), newBenchEnd(b, f, size, events)
	const psn = 77
	modify := func(e *benchEnd, a ibverbs.QPAttr, mask ibverbs.QPAttrMask) {
		a, mask = f.attrs(a, mask|ibverbs.QPAttrState)
		if a.State == ibverbs.QPRTS {
			a.RNRRetry = 7 // for ever, as perftest has it
		}
		require.NoError(b, e.qp.Modify(a, mask))
	}
	for _, e := range []*benchEnd{x, y} {
		modify(e, ibverbs.QPAttr{State: ibverbs.QPInit}, 0)
		require.NoError(b, e.recv(benchRecvs))
	}
	for e, peer := range map[*benchEnd]*benchEnd{x: y, y: x} {
		modify(e, ibverbs.QPAttr{State: ibverbs.QPRTR, DestQPNum: peer.qp.Num(), RQPSN: psn}, ibverbs.QPAttrDestQPNum|ibverbs.QPAttrRQPSN)
	}
	for _, e := range []*benchEnd{x, y} {
		modify(e, ibverbs.QPAttr{State: ibverbs.QPRTS, SQPSN: psn}, ibverbs.QPAttrSQPSN)
	}
	return x, y
}

func newBenchEnd(b *testing.B, f fabric, size int, events bool) *benchEnd {
	closeAtEnd := func(f func() error) { b.Cleanup(func() { require.NoError(b, f()) }) }
	ctx, err := f.dev.Open()
	require.NoError(b, err)
	closeAtEnd(ctx.Close)
	pd, err := ctx.AllocPD()
	require.NoError(b, err)
	closeAtEnd(pd.Dealloc)
	mem, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	require.NoError(b, err)
	closeAtEnd(func() error { return unix.Munmap(mem) })
	mr, err := pd.RegMR(mem, ibverbs.AccessLocalWrite)
	require.NoError(b, err)
	closeAtEnd(mr.Dereg)
	ch, err := ctx.CreateCompChannel()
	require.NoError(b, err)
	closeAtEnd(ch.Close)
	cq, err := ctx.CreateCQ(benchSends+benchRecvs, ch)
	require.NoError(b, err)
	closeAtEnd(cq.Destroy)
	qp, err := pd.CreateQP(ibverbs.QPInitAttr{SendCQ: cq, RecvCQ: cq, MaxSendWR: benchSends, MaxRecvWR: benchRecvs})
	require.NoError(b, err)
	closeAtEnd(qp.Destroy)
	sge := []ibverbs.SGE{{Addr: mr.Addr(), Length: uint32(size), LKey: mr.LKey()}}
	return &benchEnd{qp: qp, cq: cq, ch: ch, sge: sge, events: events}
}

// recv posts n receives.
func (e *benchEnd) recv(n int) error {
	wrs := make([]ibverbs.RecvWR, n)
	for i := range wrs {
		wrs[i].SGList = e.sge
	}
	_, err := e.qp.PostRecv(wrs)
	return err
}

// send posts one send; every 32nd is signalled, and so is the last one.
func (e *benchEnd) send(last bool) error {
	wr := ibverbs.SendWR{Opcode: ibverbs.WRSend, SGList: e.sge}
	if e.sent++; last || e.sent%32 == 0 {
		wr.Flags = ibverbs.SendSignaled
	}
	_, err := e.qp.PostSend([]ibverbs.SendWR{wr})
	return err
}

// next waits for completions and returns how many were sends and receives.
func (e *benchEnd) next(wcs []ibverbs.WC) (sends, recvs int, err error) {
	armed := false
	for {
		n, err := e.cq.Poll(wcs)
		if err != nil {
			return 0, 0, err
		}
		for _, wc := range wcs[:n] {
			switch {
			case wc.Status != ibverbs.WCSuccess:
				return 0, 0, fmt.Errorf("completion: %v", wc.Status)
			case wc.Opcode == ibverbs.WCRecv:
				recvs++
			default:
				sends++
			}
		}
		if n > 0 {
			return sends, recvs, nil
		}
		switch {
		case !e.events:
			runtime.Gosched()
		case !armed:
			armed, err = true, e.cq.ReqNotify(false)
		default:
			armed = false
			_, err = e.ch.Wait()
		}
		if err != nil {
			return 0, 0, err
		}
	}
}

func benchSend(b *testing.B, size int) {
	x, y := benchEnds(b, size, true)
	received := make(chan error, 1)
	start := time.Now()
	go func() { received <- y.receiveAll(b.N) }()
	require.NoError(b, x.sendAll(b.N))
	require.NoError(b, <-received)
	b.ReportMetric(float64(size)*float64(b.N)/(1<<20)/time.Since(start).Seconds(), "MiB/s")
}

// receiveAll takes n messages.
func (e *benchEnd) receiveAll(n int) error {
	wcs := make([]ibverbs.WC, 64)
	for n > 0 {
		_, got, err := e.next(wcs)
		if err == nil {
			err = e.recv(got)
		}
		if err != nil {
			return err
		}
		n -= got
	}
	return nil
}

// sendAll sends n messages and returns when all have completed.
func (e *benchEnd) sendAll(n int) error {
	wcs := make([]ibverbs.WC, 64)
	for done := 0; done < n; {
		for e.sent < n && e.sent-done < benchSends {
			if err := e.send(e.sent+1 == n); err != nil {
				return err
			}
		}
		signalled, _, err := e.next(wcs)
		if err != nil {
			return err
		}
		for range signalled {
			done = min(done+32, n)
		}
	}
	return nil
}

func benchPingPong(b *testing.B, events bool) {
	x, y := benchEnds(b, 64, events)
	echoed := make(chan error, 1)
	go func() { echoed <- y.pingPong(b.N, false, nil) }()
	halves := make([]time.Duration, 0, b.N)
	require.NoError(b, x.pingPong(b.N, true, func(d time.Duration) { halves = append(halves, d/2) }))
	require.NoError(b, <-echoed)
	slices.Sort(halves)
	b.ReportMetric(float64(halves[len(halves)/2].Nanoseconds())/1e3, "median-us")
}

// pingPong sends n messages and takes n, the first one sending.
func (e *benchEnd) pingPong(n int, first bool, took func(time.Duration)) error {
	wcs := make([]ibverbs.WC, 4)
	for i := range n {
		start := time.Now()
		if first {
			if err := e.send(i+1 == n); err != nil {
				return err
			}
		}
		for got := 0; got == 0; {
			var err error
			if _, got, err = e.next(wcs); err != nil {
				return err
			}
		}
		if first {
			took(time.Since(start))
		} else if err := e.send(i+1 == n); err != nil {
			return err
		}
		if err := e.recv(1); err != nil {
			return err
		}
	}
	return nil
}
