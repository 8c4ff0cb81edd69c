package conntest

import (
	"net"
	"time"

	"github.com/stretchr/testify/require"
)

var longAgo = time.Unix(1, 0)

// testReadDeadlineMoved moves the deadline of a Read that is blocked into the
// past; the Conn goes on with a new one.
func testReadDeadlineMoved(p *pair) {
	b := make([]byte, 16)
	for range 10 {
		require.NoError(p, p.server.SetReadDeadline(time.Now().Add(time.Hour)))
		read := p.startRead(p.server, b)
		require.NoError(p, p.server.SetReadDeadline(longAgo))
		r := <-read
		require.Zero(p, r.n)
		p.requireTimeout("read", r.err)
	}
	require.NoError(p, p.server.SetReadDeadline(time.Now().Add(time.Hour)))
	read := p.startRead(p.server, b)
	p.blocked(read)
	require.NoError(p, p.server.SetReadDeadline(time.Now().Add(time.Millisecond)))
	p.requireTimeout("read", (<-read).err)
	require.NoError(p, p.server.SetReadDeadline(time.Time{}))
	read = p.startRead(p.server, b)
	p.blocked(read)
	_, err := p.client.Write([]byte("x"))
	require.NoError(p, err)
	p.requireSent(1, read)
}

// testReadDeadlineExtended has a blocked Read outlive the deadline that it
// started with.
func testReadDeadlineExtended(p *pair) {
	b := make([]byte, 16)
	for _, later := range []time.Time{time.Now().Add(time.Hour), {}} {
		read := p.outlives(p.server.SetReadDeadline, later, func() <-chan result { return p.startRead(p.server, b) })
		_, err := p.client.Write([]byte("x"))
		require.NoError(p, err)
		p.requireSent(1, read)
	}
}

// outlives starts a call that blocks, moves its deadline to later, and holds it
// to blocking on when the first deadline passes. On a machine too slow for that
// it tries again with more time.
func (p *pair) outlives(set func(time.Time) error, later time.Time, start func() <-chan result) <-chan result {
	p.Helper()
	for wait := 10 * still; ; wait *= 2 {
		first := time.Now().Add(wait)
		require.NoError(p, set(first))
		call := start()
		<-time.After(wait / 10) // it blocks by now, as a rule
		require.NoError(p, set(later))
		if time.Now().Before(first) {
			<-time.After(time.Until(first))
			p.blocked(call)
			return call
		}
		require.NoError(p, set(longAgo))
		<-call
	}
}

// testReadDeadlinePast reads under a deadline that has passed: nothing, even if
// there are bytes, which stay for later.
func testReadDeadlinePast(p *pair) {
	b := make([]byte, 16)
	_, err := p.client.Write([]byte("xy"))
	require.NoError(p, err)
	p.requireSent(1, p.startRead(p.server, b[:1]))
	require.NoError(p, p.server.SetReadDeadline(longAgo))
	for range 3 {
		n, err := p.server.Read(b)
		require.Zero(p, n)
		p.requireTimeout("read", err)
	}
	require.NoError(p, p.server.SetReadDeadline(time.Time{}))
	p.requireSent(1, p.startRead(p.server, b))
	require.Equal(p, byte('y'), b[0])
	require.NoError(p, p.client.SetDeadline(longAgo))
	n, err := p.client.Write([]byte("z"))
	require.Zero(p, n)
	p.requireTimeout("write", err)
	_, err = p.client.Read(b)
	p.requireTimeout("read", err)
}

// testWriteDeadlineExpires lets the deadline of a Write pass that is blocked
// because the peer does not read.
func testWriteDeadlineExpires(p *pair) {
	p.fill(p.client, 1)
	for range 3 {
		require.NoError(p, p.client.SetWriteDeadline(time.Now().Add(still)))
		_, err := p.client.Write(make([]byte, unread))
		p.requireTimeout("write", err)
	}
	// The other direction goes on.
	sent := p.send(p.server, 2, 1<<20, sizes(10000))
	p.expect(p.client, 2, 1<<20, sizes(block))
	p.requireSent(1<<20, sent)
}

// testWriteDeadlineMoved moves the deadline of a Write that is blocked.
func testWriteDeadlineMoved(p *pair) {
	for range 3 {
		require.NoError(p, p.client.SetWriteDeadline(time.Now().Add(time.Hour)))
		write := p.startWrite(p.client, make([]byte, unread))
		p.blocked(write)
		require.NoError(p, p.client.SetWriteDeadline(longAgo))
		r := <-write
		p.requireTimeout("write", r.err)
		require.Less(p, r.n, unread)
	}
	p.outlives(p.client.SetWriteDeadline, time.Time{}, func() <-chan result { return p.startWrite(p.client, make([]byte, unread)) })
}

// testWriteDeadlineCount has the peer get exactly the bytes that interrupted
// writes said they sent, and what is written after them.
func testWriteDeadlineCount(p *pair) {
	from, total := newPattern(1).bytes(unread), 0
	for range 3 {
		require.NoError(p, p.client.SetWriteDeadline(time.Now().Add(still)))
		n, err := p.client.Write(from[total:])
		p.requireTimeout("write", err)
		total += n
	}
	require.NoError(p, p.client.SetWriteDeadline(time.Time{}))
	write := p.startWrite(p.client, from[total:])
	p.expect(p.server, 1, unread, sizes(block))
	p.requireSent(unread-total, write)
	require.NoError(p, p.closeWrite(p.client))
	p.requireEOF(p.server)
}

// testDeadlineAfterClose sets deadlines on closed ends, as grpc does. They
// change nothing.
func testDeadlineAfterClose(p *pair) {
	require.NoError(p, p.client.Close())
	require.NoError(p, p.server.Close())
	for _, c := range []net.Conn{p.client, p.server} {
		for _, by := range []time.Time{time.Now().Add(10 * time.Second), longAgo, {}} {
			for _, set := range []func(time.Time) error{c.SetDeadline, c.SetReadDeadline, c.SetWriteDeadline} {
				if err := set(by); err != nil {
					p.requireClosed("set", err)
				}
			}
		}
		_, err := c.Read(make([]byte, 1))
		p.requireClosed("read", err)
		_, err = c.Write([]byte("x"))
		p.requireClosed("write", err)
	}
}
