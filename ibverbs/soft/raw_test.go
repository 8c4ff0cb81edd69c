package soft

import (
	"net"
	"testing"

	"github.com/gdrpc/gdrpc/ibverbs"
	"github.com/stretchr/testify/require"
)

// rawPeer returns a wire and the bare other end of its stream.
func rawPeer() (*Wire, net.Conn) {
	a, b := net.Pipe()
	return NewWire(a), b
}

// deadWire returns a wire whose peer never does anything.
func deadWire(t *testing.T) *Wire {
	w, peer := rawPeer()
	t.Cleanup(func() {
		require.NoError(t, w.Close())
		require.NoError(t, peer.Close())
	})
	return w
}

// rawSide returns a side on w in state RTS, whose queue pair is number 16 and
// whose peer, played by the test, is number 99.
func rawSide(t testing.TB, cfg *Config, w *Wire) *side {
	t.Cleanup(func() { require.NoError(t, w.Close()) })
	s := newSideNumbered(t, cfg, w)
	toRTR(t, s.qp, 99)
	require.NoError(t, s.qp.Modify(ibverbs.QPAttr{State: ibverbs.QPRTS, SQPSN: testPSN}, ibverbs.QPAttrState|ibverbs.QPAttrSQPSN))
	return s
}

// newSideNumbered is newSide with queue pair number 16.
func newSideNumbered(t testing.TB, cfg *Config, w *Wire) *side {
	d := NewDevice(cfg)
	d.qpn.Store(15)
	return newSideOf(t, d, w)
}

// plainPeer is rawPeer with a stream that has no deadlines.
func plainPeer() (*Wire, net.Conn) {
	a, b := net.Pipe()
	return NewWire(plain{a}), b
}
