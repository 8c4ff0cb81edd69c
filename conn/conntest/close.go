package conntest

import (
	"io"
	"net"
	"os"

	"github.com/stretchr/testify/require"
)

// testCloseTwice closes each end again and again.
func testCloseTwice(p *pair) {
	for _, c := range []net.Conn{p.client, p.server} {
		require.NoError(p, c.Close())
		for range 3 {
			if err := c.Close(); err != nil {
				p.requireClosed("close", err)
			}
		}
	}
}

// testCloseConcurrent closes both ends from many goroutines under traffic.
func testCloseConcurrent(p *pair) {
	for i, c := range []net.Conn{p.client, p.server} {
		p.send(c, byte(i), unread, sizes(10000))
		p.start(func() (int, error) { return 0, p.check(c, byte(1-i), unread, sizes(block)).err })
	}
	gate := make(chan struct{})
	var all []<-chan result
	for range 20 {
		for _, c := range []net.Conn{p.client, p.server} {
			all = append(all, p.start(func() (int, error) {
				<-gate
				return 0, c.Close()
			}))
		}
	}
	close(gate)
	for _, ch := range all {
		if r := <-ch; r.err != nil {
			p.requireClosed("close", r.err)
		}
	}
	for _, c := range []net.Conn{p.client, p.server} {
		_, err := c.Read(make([]byte, 1))
		p.requireClosed("read", err)
	}
}

// testCloseUnblocks has Close end a Read and a Write that are blocked, many of
// each.
func testCloseUnblocks(p *pair) {
	var reads, writes []<-chan result
	for range 4 {
		reads = append(reads, p.startRead(p.client, make([]byte, 1)))
		writes = append(writes, p.startWrite(p.client, make([]byte, unread)))
	}
	p.blocked(reads[0])
	p.blocked(writes[0])
	require.NoError(p, p.client.Close())
	for _, ch := range reads {
		r := <-ch
		require.Zero(p, r.n)
		p.requireClosed("read", r.err)
	}
	for _, ch := range writes {
		p.requireClosed("write", (<-ch).err)
	}
}

// testCloseDelivers has the peer get all that was written before Close.
func testCloseDelivers(p *pair) {
	const n = 5<<20 + 12345
	sent := p.send(p.client, 1, n, sizes(32<<10))
	closed := p.start(func() (int, error) {
		r := <-sent
		if r.err == nil {
			r.err = p.client.Close()
		}
		return r.n, r.err
	})
	p.expect(p.server, 1, n, sizes(1000))
	p.requireSent(n, closed)
	p.requireEOF(p.server)
}

// testCloseDiscards closes an end with unread bytes: they are not read any more.
func testCloseDiscards(p *pair) {
	_, err := p.client.Write([]byte("xy"))
	require.NoError(p, err)
	p.requireSent(1, p.startRead(p.server, make([]byte, 1)))
	require.NoError(p, p.server.Close())
	n, err := p.server.Read(make([]byte, 1))
	require.Zero(p, n)
	p.requireClosed("read", err)
}

// testPeerCloseDrains reads what a peer sent that has closed since.
func testPeerCloseDrains(p *pair) {
	const n = 40 << 10
	p.requireSent(n, p.send(p.client, 1, n, sizes(10000)))
	require.NoError(p, p.client.Close())
	p.expect(p.server, 1, n, sizes(777))
	p.requireEOF(p.server)
	require.NoError(p, p.server.Close())
	_, err := p.server.Read(make([]byte, 1))
	p.requireClosed("read", err)
}

// testPeerCloseWrite writes to a peer that has closed: sooner or later, and
// without blocking, that fails.
func testPeerCloseWrite(p *pair) {
	require.NoError(p, p.server.Close())
	r := <-p.send(p.client, 1, unread, sizes(10000))
	p.requireError("write", r.err)
	require.NotErrorIs(p, r.err, os.ErrDeadlineExceeded)
	require.NotErrorIs(p, r.err, net.ErrClosed, "this end is open")
}

// testPeerCloseBlockedWrite closes the peer of an end whose Write is blocked.
func testPeerCloseBlockedWrite(p *pair) {
	write := p.startWrite(p.client, make([]byte, unread))
	p.blocked(write)
	require.NoError(p, p.server.Close())
	r := <-write
	p.requireError("write", r.err)
	require.NotErrorIs(p, r.err, os.ErrDeadlineExceeded)
	require.NotErrorIs(p, r.err, io.EOF)
}
