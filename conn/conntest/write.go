package conntest

import (
	"net"

	"github.com/stretchr/testify/require"
)

// testAddresses: both addresses are there, before and after Close.
func testAddresses(p *pair) {
	for range 2 {
		for _, c := range []net.Conn{p.client, p.server} {
			require.NotNil(p, c.LocalAddr())
			require.NotNil(p, c.RemoteAddr())
			require.NotEmpty(p, c.LocalAddr().Network())
			require.NotEmpty(p, c.RemoteAddr().String())
		}
		p.client.Close()
		p.server.Close()
	}
}

// testZeroLength has writes of nothing send nothing, and reads into nothing
// read nothing.
func testZeroLength(p *pair) {
	b := make([]byte, 16)
	read := p.startRead(p.server, b)
	for _, empty := range [][]byte{nil, {}} {
		n, err := p.client.Write(empty)
		require.NoError(p, err)
		require.Zero(p, n)
	}
	p.blocked(read)
	_, err := p.client.Write([]byte("x"))
	require.NoError(p, err)
	p.requireSent(1, read)
	require.Equal(p, byte('x'), b[0])
	_, err = p.client.Write([]byte("y"))
	require.NoError(p, err)
	n, err := p.server.Read(nil)
	require.NoError(p, err)
	require.Zero(p, n)
	p.requireSent(1, p.startRead(p.server, b))
	require.Equal(p, byte('y'), b[0])
}

// testTiny sends many bytes one by one, both ways.
func testTiny(p *pair) {
	const n = 20000
	a := p.send(p.client, 1, n, sizes(1))
	b := p.send(p.server, 2, n, sizes(1))
	back := p.start(func() (int, error) {
		r := p.check(p.client, 2, n, sizes(1))
		return r.n, r.err
	})
	p.expect(p.server, 1, n, sizes(block))
	for _, ch := range []<-chan result{a, b, back} {
		p.requireSent(n, ch)
	}
}

// testHuge sends 64 MiB in one Write.
func testHuge(p *pair) {
	const n = 64 << 20
	sent := p.send(p.client, 1, n, sizes(n))
	p.expect(p.server, 1, n, sizes(block))
	p.requireSent(n, sent)
	require.NoError(p, p.closeWrite(p.client))
	p.requireEOF(p.server)
}

// testRandomSizes sends and reads random sizes, both ways at once.
func testRandomSizes(p *pair) {
	const n = 12 << 20
	var all []<-chan result
	for i, c := range []net.Conn{p.client, p.server} {
		all = append(all, p.send(c, byte(i), n, randomSizes(uint64(i), 200<<10)),
			p.start(func() (int, error) {
				r := p.check(c, byte(1-i), n, randomSizes(uint64(i)+2, block))
				return r.n, r.err
			}))
	}
	for _, ch := range all {
		p.requireSent(n, ch)
	}
}

// testBothBlocked has both ends write with nobody reading until both windows are
// full, and then drains both: no deadlock, no lost wake-up.
func testBothBlocked(p *pair) {
	a := p.startWrite(p.client, newPattern(1).bytes(unread))
	b := p.startWrite(p.server, newPattern(2).bytes(unread))
	p.blocked(a)
	p.blocked(b)
	back := p.start(func() (int, error) {
		r := p.check(p.client, 2, unread, randomSizes(1, block))
		return r.n, r.err
	})
	p.expect(p.server, 1, unread, randomSizes(2, block))
	for _, ch := range []<-chan result{a, b, back} {
		p.requireSent(unread, ch)
	}
}

// testBothBlockedOneDrained drains one direction while the other one stays full.
func testBothBlockedOneDrained(p *pair) {
	b := p.startWrite(p.server, newPattern(2).bytes(unread))
	p.blocked(b)
	for seed := range byte(3) {
		a := p.startWrite(p.client, newPattern(seed).bytes(unread/3))
		p.expect(p.server, seed, unread/3, sizes(block))
		p.requireSent(unread/3, a)
	}
	p.blocked(b)
	p.expect(p.client, 2, unread, sizes(block))
	p.requireSent(unread, b)
}
