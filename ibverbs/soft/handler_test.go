package soft

import (
	"testing"

	"github.com/gdrpc/gdrpc/ibverbs"
	"github.com/stretchr/testify/require"
)

// handled has ch told of a queue's completions.
func handled(c ibverbs.CQ) <-chan ibverbs.WC {
	ch := make(chan ibverbs.WC, 4*sideDepth)
	q := c.(ibverbs.HandledCQ)
	q.SetCompHandler(func() {
		var wcs [4]ibverbs.WC
		for {
			n, err := q.Poll(wcs[:])
			if n == 0 || err != nil {
				return
			}
			for _, wc := range wcs[:n] {
				ch <- wc
			}
		}
	})
	return ch
}

// TestHandlerRecv checks that each message calls the handler, whether or not
// the last call is over.
func TestHandlerRecv(t *testing.T) {
	for name, wires := range map[string]func() (*Wire, *Wire){
		"pipe": Pipe,
		"tcp":  func() (*Wire, *Wire) { a, b := tcpPair(t); return NewWire(a), NewWire(b) },
	} {
		t.Run(name, func(t *testing.T) {
			wa, wb := wires()
			a, b := sides(t, nil, wa, wb)
			arrived := handled(b.rcq)
			for i := range uint64(sideDepth) {
				_, err := b.qp.PostRecv([]ibverbs.RecvWR{{WRID: i}})
				require.NoError(t, err)
			}
			for i := range uint64(sideDepth) {
				_, err := a.qp.PostSend([]ibverbs.SendWR{{WRID: i, Opcode: ibverbs.WRSend}})
				require.NoError(t, err)
				require.Equal(t, i, (<-arrived).WRID)
			}
		})
	}
}

// TestHandlerSend checks that a send that the poster's own call completes is
// there for it to poll, and that what completes later calls the handler.
func TestHandlerSend(t *testing.T) {
	ca, cb := tcpPair(t)
	wa, wb := NewWire(ca), NewWire(cb)
	a, b := sides(t, nil, wa, wb)
	done := handled(a.scq)
	for i := range uint64(2) {
		_, err := b.qp.PostRecv([]ibverbs.RecvWR{{WRID: i}})
		require.NoError(t, err)
	}
	_, err := a.qp.PostSend([]ibverbs.SendWR{{WRID: 1, Opcode: ibverbs.WRSend, Flags: ibverbs.SendSignaled}})
	require.NoError(t, err)
	var wcs [2]ibverbs.WC
	n, err := a.scq.Poll(wcs[:])
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.Empty(t, done)

	// A write that the poster may not make itself.
	wa.mu.Lock()
	wa.pumping = true
	wa.wg.Add(1)
	wa.mu.Unlock()
	_, err = a.qp.PostSend([]ibverbs.SendWR{{WRID: 2, Opcode: ibverbs.WRSend, Flags: ibverbs.SendSignaled}})
	require.NoError(t, err)
	go wa.pump()
	require.Equal(t, uint64(2), (<-done).WRID)
}

// TestHandlerFlush checks that flushed requests call the handler, on a
// goroutine that holds no lock of who flushed them.
func TestHandlerFlush(t *testing.T) {
	wa, wb := Pipe()
	a, _ := sides(t, nil, wa, wb)
	flushed := handled(a.rcq)
	for i := range uint64(3) {
		_, err := a.qp.PostRecv([]ibverbs.RecvWR{{WRID: i}})
		require.NoError(t, err)
	}
	toErr(t, a.qp)
	for i := range uint64(3) {
		wc := <-flushed
		require.Equal(t, i, wc.WRID)
		require.Equal(t, ibverbs.WCWRFlushErr, wc.Status)
	}
	a.rcq.(ibverbs.HandledCQ).SetCompHandler(nil)
	_, err := a.qp.PostRecv([]ibverbs.RecvWR{{WRID: 9}})
	require.NoError(t, err)
	var wcs [1]ibverbs.WC
	n, err := a.rcq.Poll(wcs[:])
	require.NoError(t, err)
	require.Equal(t, 1, n)
}
