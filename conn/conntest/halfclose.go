package conntest

import (
	"net"
	"os"
	"time"

	"github.com/stretchr/testify/require"
)

// testHalfClose ends one direction; the other goes on.
func testHalfClose(p *pair) {
	sent := p.send(p.client, 1, 100<<10, sizes(7000))
	p.expect(p.server, 1, 100<<10, sizes(block))
	p.requireSent(100<<10, sent)
	require.NoError(p, p.closeWrite(p.client))
	p.requireEOF(p.server)
	sent = p.send(p.server, 2, 1<<20, sizes(30000))
	p.expect(p.client, 2, 1<<20, sizes(block))
	p.requireSent(1<<20, sent)
	require.NoError(p, p.server.Close())
	p.requireEOF(p.client)
}

// testHalfCloseDrains has the end of the stream come behind all bytes, although
// it is sent long before they are read.
func testHalfCloseDrains(p *pair) {
	const n = 48 << 10 // whatever the implementation, this much needs no reader
	p.requireSent(n, p.send(p.client, 1, n, sizes(5000)))
	require.NoError(p, p.closeWrite(p.client))
	p.expect(p.server, 1, n, sizes(333))
	p.requireEOF(p.server)
}

// testHalfCloseTwice writes and closes again after CloseWrite.
func testHalfCloseTwice(p *pair) {
	require.NoError(p, p.closeWrite(p.client))
	n, err := p.client.Write([]byte("late"))
	require.Zero(p, n)
	p.requireError("write", err)
	require.NotErrorIs(p, err, os.ErrDeadlineExceeded)
	if err := p.closeWrite(p.client); err != nil {
		p.requireError("close", err)
	}
	p.requireEOF(p.server)
	require.NoError(p, p.client.Close())
	p.requireClosed("close", p.closeWrite(p.client))
}

// testHalfCloseBoth ends both directions while data flows in both.
func testHalfCloseBoth(p *pair) {
	const n = 3 << 20
	ends := []struct {
		c          net.Conn
		send, recv byte
	}{{p.client, 1, 2}, {p.server, 2, 1}}
	var results []<-chan result
	for _, e := range ends {
		sent := p.send(e.c, e.send, n, sizes(40000))
		results = append(results, p.start(func() (int, error) {
			r := <-sent
			if r.err == nil {
				r.err = p.closeWrite(e.c)
			}
			return r.n, r.err
		}), p.start(func() (int, error) {
			r := p.check(e.c, e.recv, n, sizes(block))
			return r.n, r.err
		}))
	}
	for _, r := range results {
		p.requireSent(n, r)
	}
	p.requireEOF(p.client)
	p.requireEOF(p.server)
}

// testHalfCloseFullWindow ends a direction whose window is full: CloseWrite does
// not wait for the peer to read, and the end comes behind all that was sent.
func testHalfCloseFullWindow(p *pair) {
	n := p.fill(p.client, 1)
	closed := p.start(func() (int, error) { return 0, p.closeWrite(p.client) })
	p.requireSent(0, closed)
	p.expect(p.server, 1, n, sizes(block))
	p.requireEOF(p.server)
}

// fill writes bytes of stream seed until no more are taken, and returns how
// many were.
func (p *pair) fill(c net.Conn, seed byte) int {
	p.Helper()
	b := newPattern(seed).bytes(unread)
	require.NoError(p, c.SetWriteDeadline(time.Now().Add(still)))
	n, err := c.Write(b)
	p.requireTimeout("write", err)
	require.Less(p, n, unread)
	require.NoError(p, c.SetWriteDeadline(time.Time{}))
	return n
}
