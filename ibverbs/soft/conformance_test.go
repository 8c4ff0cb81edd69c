package soft

import (
	"crypto/tls"
	"io"
	"net"
	"testing"

	"github.com/gdrpc/gdrpc/ibverbs"
	"github.com/gdrpc/gdrpc/ibverbs/ibverbstest"
	"github.com/stretchr/testify/require"
)

func TestConformance(t *testing.T) {
	for _, tt := range []struct {
		name string
		make func(*testing.T) (*Wire, *Wire)
	}{
		{"pipe", func(*testing.T) (*Wire, *Wire) { return Pipe() }},
		{"tcp", func(t *testing.T) (*Wire, *Wire) { a, b := tcpPair(t); return NewWire(a), NewWire(b) }},
		{"plain stream", plainWires},
		{"tls", tlsWires},
		{"shared", sharedWires},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ibverbstest.Run(t, func(t *testing.T) ibverbstest.Pair { return newPair(t, tt.make) })
		})
	}
}

// newPair returns two devices joined by a wire.
func newPair(t *testing.T, wires func(*testing.T) (*Wire, *Wire)) ibverbstest.Pair {
	wa, wb := wires(t)
	t.Cleanup(func() {
		require.NoError(t, wa.Close())
		require.NoError(t, wb.Close())
	})
	a, err := NewDevice(&Config{MaxMsgSz: 8 << 20}).Open()
	require.NoError(t, err)
	b, err := NewDevice(&Config{MaxMsgSz: 8 << 20}).Open()
	require.NoError(t, err)
	return ibverbstest.Pair{A: a, B: b, Link: func(a, b ibverbs.QP) error {
		if err := wa.Attach(a); err != nil {
			return err
		}
		return wb.Attach(b)
	}}
}

// tcpPair returns the two ends of a loopback connection.
func tcpPair(t testing.TB) (a, b net.Conn) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	a, err = net.Dial("tcp", ln.Addr().String())
	require.NoError(t, err)
	b, err = ln.Accept()
	require.NoError(t, err)
	return a, b
}

// plain hides everything of a stream but reading, writing and closing.
type plain struct{ io.ReadWriteCloser }

func plainWires(t *testing.T) (*Wire, *Wire) {
	a, b := tcpPair(t)
	return NewWire(plain{a}), NewWire(plain{b})
}

// sharedWires have idle queue pairs on them, so that long messages go in
// fragments.
func sharedWires(t *testing.T) (*Wire, *Wire) {
	a, b := tcpPair(t)
	wa, wb := NewWire(a), NewWire(b)
	newSide(t, nil, wa)
	newSide(t, nil, wb)
	return wa, wb
}

func tlsWires(t *testing.T) (*Wire, *Wire) {
	a, b := tcpPair(t)
	client, server := tlsConfigs(t)
	return NewWire(tls.Client(a, client)), NewWire(tls.Server(b, server))
}
