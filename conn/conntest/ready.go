package conntest

import (
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/mem"
)

// readyReader is what grpc-go looks for in a Conn.
type readyReader interface {
	ReadOnReady(size int, pool mem.BufferPool) (*[]byte, int, error)
}

// countingPool is a buffer pool that knows its buffers.
type countingPool struct {
	mu  sync.Mutex
	out map[*[]byte]bool // guarded by mu
	bad []string         // guarded by mu
}

func newCountingPool() *countingPool { return &countingPool{out: make(map[*[]byte]bool)} }

// Get implements mem.BufferPool.
func (p *countingPool) Get(n int) *[]byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	b := make([]byte, n)
	p.out[&b] = true
	return &b
}

// Put implements mem.BufferPool.
func (p *countingPool) Put(b *[]byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.out[b] {
		p.bad = append(p.bad, "a buffer came back that was not out")
	}
	delete(p.out, b)
}

// require holds the pool to having handed out buffers now, and to misuse never.
func (p *countingPool) require(t *pair, out int) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	require.Len(t, p.out, out, "buffers held")
	require.Empty(t, p.bad)
}

func (p *pair) ready(c net.Conn) readyReader {
	p.Helper()
	r, ok := c.(readyReader)
	require.True(p, ok, "%T has no ReadOnReady", c)
	return r
}

var (
	errWithBuffer = errors.New("ReadOnReady returned a buffer with an error")
	errNoBuffer   = errors.New("ReadOnReady returned neither an error nor a buffer with bytes")
)

// readyOnce adapts ReadOnReady to io.Reader, holding it to its contract.
type readyOnce struct {
	r    readyReader
	pool *countingPool
}

// Read implements io.Reader.
func (r readyOnce) Read(b []byte) (int, error) {
	buf, n, err := r.r.ReadOnReady(len(b), r.pool)
	if err != nil {
		if buf != nil || n != 0 {
			return 0, errWithBuffer
		}
		return 0, err
	}
	if buf == nil || n < 1 || n > len(*buf) || len(*buf) < len(b) {
		return 0, errNoBuffer
	}
	n = copy(b, (*buf)[:n])
	r.pool.Put(buf)
	return n, nil
}

// testReadOnReadyIdle has an idle Conn hold no buffer.
func testReadOnReadyIdle(p *pair) {
	pool := newCountingPool()
	b := make([]byte, 100)
	r := readyOnce{p.ready(p.server), pool}
	for range 3 {
		read := p.start(func() (int, error) { return r.Read(b) })
		p.blocked(read)
		pool.require(p, 0)
		_, err := p.client.Write([]byte("hello"))
		require.NoError(p, err)
		p.requireSent(5, read)
		require.Equal(p, "hello", string(b[:5]))
		pool.require(p, 0)
	}
}

// testReadOnReadyData reads much by ReadOnReady, in buffers of all sizes.
func testReadOnReadyData(p *pair) {
	const n = 6 << 20
	pool := newCountingPool()
	sent := p.send(p.client, 1, n, randomSizes(1, 100<<10))
	p.expect(readyOnce{p.ready(p.server), pool}, 1, n, randomSizes(2, block))
	p.requireSent(n, sent)
	pool.require(p, 0)
}

// testReadOnReadyMixed reads by Read and by ReadOnReady in turn.
func testReadOnReadyMixed(p *pair) {
	const n = 1 << 20
	r := &alternate{readyOnce{p.ready(p.server), newCountingPool()}, p.server}
	sent := p.send(p.client, 1, n, randomSizes(1, 100<<10))
	p.expect(r, 1, n, randomSizes(2, 5000))
	p.requireSent(n, sent)
}

// alternate reads from its two readers in turn.
type alternate [2]io.Reader

// Read implements io.Reader.
func (a *alternate) Read(b []byte) (int, error) {
	a[0], a[1] = a[1], a[0]
	return a[0].Read(b)
}

// testReadOnReadyEnd reads to the end of the stream, and beyond.
func testReadOnReadyEnd(p *pair) {
	const n = 20 << 10
	pool := newCountingPool()
	p.requireSent(n, p.send(p.client, 1, n, sizes(5000)))
	require.NoError(p, p.client.Close())
	r := readyOnce{p.ready(p.server), pool}
	p.expect(r, 1, n, sizes(3000))
	for range 3 {
		_, err := r.Read(make([]byte, 100))
		require.True(p, err == io.EOF, "want io.EOF bare, got %#v", err)
	}
	pool.require(p, 0)
}

// testReadOnReadyDeadline has deadlines end ReadOnReady, without a buffer.
func testReadOnReadyDeadline(p *pair) {
	pool := newCountingPool()
	b := make([]byte, 100)
	r := readyOnce{p.ready(p.server), pool}
	require.NoError(p, p.server.SetReadDeadline(longAgo))
	_, err := r.Read(b)
	p.requireTimeout("read", err)
	require.NoError(p, p.server.SetReadDeadline(time.Now().Add(time.Hour)))
	read := p.start(func() (int, error) { return r.Read(b) })
	p.blocked(read)
	require.NoError(p, p.server.SetReadDeadline(longAgo))
	p.requireTimeout("read", (<-read).err)
	pool.require(p, 0)
	require.NoError(p, p.server.SetReadDeadline(time.Time{}))
	_, err = p.client.Write([]byte("x"))
	require.NoError(p, err)
	p.requireSent(1, p.start(func() (int, error) { return r.Read(b) }))
	require.Equal(p, byte('x'), b[0])
}

// testReadOnReadyClose has Close end ReadOnReady, without a buffer.
func testReadOnReadyClose(p *pair) {
	pool := newCountingPool()
	r := readyOnce{p.ready(p.server), pool}
	read := p.start(func() (int, error) { return r.Read(make([]byte, 100)) })
	p.blocked(read)
	require.NoError(p, p.server.Close())
	p.requireClosed("read", (<-read).err)
	_, err := r.Read(make([]byte, 100))
	p.requireClosed("read", err)
	pool.require(p, 0)
}
