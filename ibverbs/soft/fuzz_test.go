package soft

import (
	"bytes"
	"testing"

	"github.com/gdrpc/gdrpc/ibverbs"
	"github.com/stretchr/testify/require"
)

// tape is a stream that plays bytes, once started, and swallows what is written.
type tape struct {
	*bytes.Reader
	start chan struct{}
}

func (t tape) Read(p []byte) (int, error) {
	<-t.start
	return t.Reader.Read(p)
}

func (tape) Write(p []byte) (int, error) { return len(p), nil }
func (tape) Close() error                { return nil }

// FuzzWire feeds bytes to a wire with two queue pairs, numbers 16 and 17, that
// have posted receives. Nothing outside the receives may change, and every
// request must be accounted for.
func FuzzWire(f *testing.F) {
	f.Fuzz(func(t *testing.T, data []byte) {
		in := tape{bytes.NewReader(data), make(chan struct{})}
		w := NewWire(in)
		s := newSideNumbered(t, nil, w)
		t.Cleanup(func() { require.NoError(t, w.Close()) })
		other := s.newQP(w)
		dst := s.mem(16<<10, ibverbs.AccessLocalWrite)
		s.recv(1, dst.sge(100, 50), dst.sge(1000, 9000))
		s.recv(2, dst.sge(12000, 16))
		s.recv(3)
		_, err := other.PostRecv([]ibverbs.RecvWR{{WRID: 4, SGList: []ibverbs.SGE{dst.sge(13000, 1)}}})
		require.NoError(t, err)
		toRTR(t, other, 98)
		toRTR(t, s.qp, 99)
		close(in.start)
		<-w.Done()
		require.Error(t, w.Err())
		s.await(s.rcq, 4)
		for _, gap := range [][2]int{{0, 100}, {150, 1000}, {10000, 12000}, {12016, 13000}, {13001, 16 << 10}} {
			require.Equal(t, make([]byte, gap[1]-gap[0]), dst.buf[gap[0]:gap[1]])
		}
	})
}
