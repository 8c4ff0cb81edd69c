package conntest

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net"

	"github.com/stretchr/testify/require"
)

// block is the unit in which pattern bytes are made.
const block = 64 << 10

// pattern is an endless stream of random bytes that both ends can make.
type pattern struct {
	src  *rand.ChaCha8
	buf  [block]byte
	left []byte
}

func newPattern(seed byte) *pattern { return &pattern{src: rand.NewChaCha8([32]byte{seed})} }

// next returns up to n bytes of the stream, at least one.
func (p *pattern) next(n int) []byte {
	if len(p.left) == 0 {
		p.src.Read(p.buf[:]) // never fails
		p.left = p.buf[:]
	}
	b := p.left[:min(n, len(p.left))]
	p.left = p.left[len(b):]
	return b
}

// bytes returns the next n bytes of the stream.
func (p *pattern) bytes(n int) []byte {
	b := make([]byte, 0, n)
	for len(b) < n {
		b = append(b, p.next(n-len(b))...)
	}
	return b
}

// matches reports whether b is what comes next.
func (p *pattern) matches(b []byte) bool {
	for len(b) > 0 {
		want := p.next(len(b))
		if !bytes.Equal(want, b[:len(want)]) {
			return false
		}
		b = b[len(want):]
	}
	return true
}

// send writes n bytes of stream seed in writes of the sizes that size returns.
func (p *pair) send(c net.Conn, seed byte, n int, size func() int) <-chan result {
	return p.start(func() (int, error) {
		from, sent := newPattern(seed), 0
		for sent < n {
			k, err := c.Write(from.bytes(min(size(), n-sent)))
			if sent += k; err != nil {
				return sent, err
			}
		}
		return sent, nil
	})
}

// expect reads n bytes in reads of the sizes that size returns and holds them
// to be those of stream seed.
func (p *pair) expect(c io.Reader, seed byte, n int, size func() int) {
	p.Helper()
	r := p.check(c, seed, n, size)
	require.NoError(p, r.err, "after %d of %d bytes", r.n, n)
}

// check is expect for use beside the test: it only returns what it found.
func (p *pair) check(c io.Reader, seed byte, n int, size func() int) result {
	want, got, b := newPattern(seed), 0, make([]byte, block)
	for got < n {
		k, err := c.Read(b[:min(size(), n-got, len(b))])
		if !want.matches(b[:k]) {
			return result{got, errOther}
		}
		if got += k; err != nil {
			return result{got, err}
		}
	}
	return result{got, nil}
}

var errOther = errors.New("other bytes than those sent")

// sizes returns a function that always returns n.
func sizes(n int) func() int { return func() int { return n } }

// randomSizes returns a function of sizes from 1 to most, small ones often.
func randomSizes(seed uint64, most int) func() int {
	rng := rand.New(rand.NewPCG(seed, seed))
	return func() int { return 1 + rng.IntN(1+rng.IntN(most)) }
}

// requireSent holds a call to having sent n bytes.
func (p *pair) requireSent(n int, ch <-chan result) {
	p.Helper()
	r := <-ch
	require.NoError(p, r.err, "after %d of %d bytes", r.n, n)
	require.Equal(p, n, r.n)
}
