package dialer

import (
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/gdrpc/gdrpc/conn"
	"github.com/stretchr/testify/require"
)

func TestFailures(t *testing.T) {
	now := time.Unix(1000, 0)
	f := failures{now: func() time.Time { return now }}
	const ttl = 10 * time.Minute
	require.False(t, f.add("a", ttl))
	require.False(t, f.add("a", ttl))
	require.False(t, f.add("b", ttl), "each address has its own count")
	f.clear("a")
	require.False(t, f.add("a", ttl))
	now = now.Add(failureWindow)
	require.False(t, f.add("a", ttl), "the one before is forgotten")
	require.False(t, f.add("a", ttl))
	require.True(t, f.add("a", ttl))
	now = now.Add(ttl)
	require.True(t, f.add("a", ttl), "the next handshake fails too")
	now = now.Add(ttl + failureWindow)
	require.False(t, f.add("a", ttl))
}

func TestFailuresBounded(t *testing.T) {
	var f failures
	for i := range maxMarks + 1 {
		f.add(fmt.Sprint(i), time.Minute)
	}
	require.Len(t, f.byAddr, 1)
}

// TestBackOff: a server on which handshakes fail again and again is met in plain
// at once for a while, with that reason.
func TestBackOff(t *testing.T) {
	crash := func(c net.Conn, n int) {
		if n == 8 || n <= 2*maxFailures && n%2 == 1 {
			return
		}
		echo(c)
	}
	s := serve(t, crash)
	d := newDialer(t, Config{PlainTTL: time.Minute})
	now := time.Now()
	d.marks.now = func() time.Time { return now }
	d.failures.now = d.marks.now
	dial := func(conns int64) string {
		c, err := d.dialTest(t, s.Addr().String())
		require.NoError(t, err)
		require.Equal(t, conn.ModePlain, c.Stats().Mode)
		s.requireConns(t, conns)
		return c.Stats().Reason
	}
	for i := range int64(maxFailures) {
		require.Contains(t, dial(2*i+2), "reading the server's Hello: ")
	}
	const want = "3 handshakes in a row failed at this address, and the next is tried 1m0s after the last, which failed so: gdrpc: handshake with "
	require.Contains(t, dial(7), want)
	now = now.Add(time.Minute)
	require.NotContains(t, dial(9), want)
	require.Contains(t, dial(10), want, "the first one after that failed too")
}

// TestBackOffEnds: one handshake that goes well begins a new count.
func TestBackOffEnds(t *testing.T) {
	l := listen(t)
	d := newDialer(t, Config{})
	fail := (&recorder{failAt: "sending Up"}).hook
	for _, hook := range []func(){
		func() { d.hook = fail }, func() {}, func() { d.hook = nil }, func() { d.hook = fail }, func() {}, func() { d.hook = nil },
	} {
		hook()
		c, err := d.dialTest(t, l.Addr().String())
		require.NoError(t, err)
		if d.hook == nil {
			require.Equal(t, conn.ModeSoftJoined, c.Stats().Mode)
		}
		c.Close()
	}
	require.Empty(t, d.marks.until)
}
