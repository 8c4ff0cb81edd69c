package gdrpc

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"

	"github.com/gdrpc/gdrpc/conn"
	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// deaf is a link on which grpc's client learns of the end of a connection only
// when it has written to it since. It takes one connection.
type deaf struct {
	link
	dialled chan *conn.Conn
	hear    func() // closes heard
	heard   chan struct{}
}

func newDeaf(t testing.TB) *deaf {
	d := &deaf{link: newLanes(t), dialled: make(chan *conn.Conn, 1), heard: make(chan struct{})}
	d.hear = sync.OnceFunc(func() { close(d.heard) })
	return d
}

func (d *deaf) dial(ctx context.Context, addr string) (net.Conn, error) {
	c, err := d.link.dial(ctx, addr)
	if err != nil {
		return nil, err
	}
	d.dialled <- c.(*conn.Conn)
	return deafConn{c, d}, nil
}

type deafConn struct {
	net.Conn
	link *deaf
}

func (c deafConn) Write(b []byte) (int, error) {
	if errors.Is(c.Conn.(*conn.Conn).Offload(), conn.ErrLanesLost) {
		c.link.hear()
	}
	n, err := c.Conn.Write(b)
	if err != nil { // grpc writes nothing after that
		c.link.hear()
	}
	return n, err
}

func (c deafConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err != nil {
		<-c.link.heard
	}
	return n, err
}

// A call that was given a connection whose end grpc has not noticed is made
// again on another, though no retry policy says so.
func TestUnsent(t *testing.T) {
	ends := newDeaf(t)
	links := map[string]link{"ends": ends, "stays": newLanes(t)}
	servers, answered := map[string]*Server{}, map[string]int{}
	for name, l := range links {
		servers[name] = NewServer(WithConfig(Config{Pool: newPool(t, gpubuf.Config{})}))
		serve(t, l, servers[name], &echo{handle: func(ctx context.Context) error {
			answered[name]++
			return bounce(ctx)
		}})
	}
	pool := newPool(t, gpubuf.Config{})
	s := &setup{clientPool: pool, client: dialAll(t, links, pool)}
	t.Cleanup(ends.hear) // before the client closes
	for len(answered) < 2 {
		roundTrip(t, s, []int64{7}, linkKinds["lanes"].path)
	}
	over := <-ends.dialled
	servers["ends"].Stop()
	until(t, func() bool { return errors.Is(over.Offload(), conn.ErrLanesLost) })
	clear(answered)
	for range 2 { // round robin: one of them there
		roundTrip(t, s, []int64{100000}, linkKinds["lanes"].path)
	}
	require.Equal(t, map[string]int{"stays": 2}, answered)
	until(t, func() bool { return pool.Stats().Slices == 0 })
}

// TestAgain: only a call of which nothing was sent is made again; not one whose
// reply the lost lanes cannot land, which the server has run.
func TestAgain(t *testing.T) {
	over, server, err := conn.Pipe(newLanes(t).(*lanes).domain)
	require.NoError(t, err)
	require.NoError(t, over.Close())
	require.NoError(t, server.Close())
	lost := errorf(codes.Unavailable, "attachment 0: %w", conn.ErrLanesLost)
	newCall := func() *clientCall { return &clientCall{Context: t.Context(), last: attempt{conn: over}} }

	unsent := newCall()
	unsent.notMade(lost)
	_ = unsent.leave(lost)
	require.True(t, unsent.again(lost))
	require.False(t, unsent.again(lost), "the attempt after it failed for another reason")

	reply := newCall()
	_ = reply.leave(lost) // as Unmarshal does
	require.False(t, reply.again(lost))

	replayed := newCall()
	replayed.made(route{}, nil)
	replayed.notMade(lost)
	require.False(t, replayed.again(lost), "an earlier message was sent")

	other := newCall()
	other.notMade(limits{count: 1}.tooMany(2))
	require.False(t, other.again(lost))
}

// Lanes that are lost are no matter of configuration: a caller may try again.
func TestLanesLostCode(t *testing.T) {
	l := newLanes(t).(*lanes)
	client, server, err := conn.Pipe(l.domain)
	require.NoError(t, err)
	require.NoError(t, client.Close())
	require.NoError(t, server.Close())
	slice := newSlice(t, newPool(t, gpubuf.Config{}), 100000, 0)
	defer slice.Free()
	ep := newEndpoint([]Option{WithConfig(Config{Require: conn.PathSoft})})
	until(t, func() bool {
		_, err := ep.plan([]*gpubuf.Slice{slice}, route{conn: client, gdrpc: true})
		return status.Code(err) == codes.Unavailable
	})
}
