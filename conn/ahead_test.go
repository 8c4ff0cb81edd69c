package conn

import (
	"io"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// h2settings is how each side's frames begin.
func h2settings() []byte { return []byte{0, 0, 6, h2Settings, 0, 0, 0, 0, 0, 0, 4, 0, 1, 0, 0} }

// h2frame is a frame with a payload of n bytes, each of them b.
func h2frame(kind, flags byte, n int, b byte) []byte {
	f := []byte{byte(n >> 16), byte(n >> 8), byte(n), kind, flags, 0, 0, 0, 1}
	for range n {
		f = append(f, b)
	}
	return f
}

// TestDataFrames finds the DATA frames of a stream however it is cut.
func TestDataFrames(t *testing.T) {
	var stream []byte
	for _, f := range [][]byte{
		h2settings(), h2frame(h2Settings, 1, 0, 0), h2frame(1, 4, 70, 'h'), h2frame(h2Data, 1, 100, 'a'), h2frame(h2Data, 0, 0, 0), h2frame(h2Data, 0, 1, 'b'),
		h2frame(h2Data, h2Padded, 50, 'p'), h2frame(6, 0, 8, 0), h2frame(8, 0, 4, 0), h2frame(h2Data, 0, 70_000, 'c'), h2frame(h2Data, 0, 16_384, 'd'),
	} {
		stream = append(stream, f...)
	}
	var whole string
	new(dataFrames).walk(stream, func(b []byte) {
		whole += string(b[:1])
		require.Equal(t, map[byte]int{'a': 100, 'b': 1, 'c': 70_000, 'd': 16_384}[b[0]], len(b))
	})
	require.Equal(t, "abcd", whole)

	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		f, most, found := dataFrames{skip: 3}, 1+r.IntN(200), ""
		for rest := append([]byte("PRI"), stream...); len(rest) > 0; {
			n := min(len(rest), 1+r.IntN(most))
			f.walk(rest[:n], func(b []byte) { found += string(b[:1]) })
			rest = rest[n:]
		}
		require.Subset(t, []byte("abcd"), []byte(found)) // one whose header ends a read is passed over
		require.Zero(t, f.skip+f.have)
	}
}

// TestOtherFrames: what does not begin with SETTINGS is not looked through.
func TestOtherFrames(t *testing.T) {
	data := h2frame(h2Data, 0, 100, 'a')
	ack, ofStream := h2frame(h2Settings, 1, 0, 0), h2settings()
	ofStream[8] = 1
	for name, begin := range map[string][]byte{
		"data": data, "zeros": make([]byte, 64<<10), "settings's ack": ack, "settings of a stream": ofStream, "TLS": {22, 3, 1, 0, 200, 1, 0, 0, 196, 3, 3},
	} {
		for cut := range h2Header { // the first header may come in two pieces
			var f dataFrames
			for _, b := range [][]byte{begin[:cut], begin[cut:], data, data} {
				f.walk(b, func([]byte) { t.Errorf("%s, cut at %d: found a frame", name, cut) })
			}
			require.True(t, f.other, name)
		}
	}
}

// recorder is an Ahead that notes what it hears.
type recorder struct {
	heard []string
	ended chan struct{}
}

func (r *recorder) Message(b []byte) { r.heard = append(r.heard, string(b)) }
func (r *recorder) Ended()           { close(r.ended) }

// TestAhead: both sides hear of DATA frames from when they have an Ahead on; the
// first one stays, and is told of the end once.
func TestAhead(t *testing.T) {
	for _, toServer := range []bool{true, false} {
		from, to := ipcPair(t, quiet())
		greet(t, from, to)
		if !toServer {
			from, to = to, from
		}
		send := func(b []byte) {
			_, err := from.Write(b)
			require.NoError(t, err)
			_, err = io.ReadFull(to, make([]byte, len(b)))
			require.NoError(t, err)
		}
		headers := h2frame(1, 0, 20, 'h')
		send(append(h2settings(), h2frame(h2Data, 0, 3, 'x')...))
		send(headers[:15])
		r, other := &recorder{ended: make(chan struct{})}, &recorder{ended: make(chan struct{})}
		require.Nil(t, to.Ahead())
		require.Same(t, r, to.SetAhead(r))
		require.Same(t, r, to.SetAhead(other))
		require.Same(t, r, to.Ahead())
		send(headers[15:])
		send(append(h2frame(h2Data, 0, 3, 'y'), h2frame(h2Data, 1, 2, 'z')...))
		require.Equal(t, []string{"yyy", "zz"}, r.heard)
		to.Close()
		<-r.ended
		late := &recorder{ended: make(chan struct{})}
		from.Close()
		from.SetAhead(late)
		<-late.ended
	}
}
