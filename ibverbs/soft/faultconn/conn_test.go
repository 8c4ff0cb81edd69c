package faultconn

import (
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gdrpc/gdrpc/internal/leak/leaktest"
	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// pair runs f under synctest with a connection with faults and its plain peer.
func pair(t *testing.T, s Script, f func(t *testing.T, c *Conn, peer net.Conn)) {
	synctest.Test(t, func(t *testing.T) {
		a, b := net.Pipe()
		c := Wrap(a, s)
		f(t, c, b)
		c.Close()
		require.NoError(t, b.Close())
	})
}

func TestNoFaults(t *testing.T) {
	pair(t, Script{}, func(t *testing.T, c *Conn, peer net.Conn) {
		go peer.Write([]byte("hello"))
		b := make([]byte, 5)
		_, err := io.ReadFull(c, b)
		require.NoError(t, err)
		go c.Write(b)
		_, err = io.ReadFull(peer, b)
		require.NoError(t, err)
		require.Equal(t, "hello", string(b))
	})
}

func TestCutWrite(t *testing.T) {
	pair(t, Script{Write: CutAt(7)}, func(t *testing.T, c *Conn, peer net.Conn) {
		go func() {
			n, err := c.Write([]byte("hello"))
			if n != 5 || err != nil {
				t.Errorf("first write: %d, %v", n, err)
			}
			n, err = c.Write([]byte("world"))
			if n != 2 || !errors.Is(err, ErrCut) {
				t.Errorf("second write: %d, %v", n, err)
			}
		}()
		got, err := io.ReadAll(peer)
		require.NoError(t, err)
		require.Equal(t, "hellowo", string(got))
	})
}

func TestCutRead(t *testing.T) {
	pair(t, Script{Read: CutAt(3)}, func(t *testing.T, c *Conn, peer net.Conn) {
		go peer.Write([]byte("hello"))
		got, err := io.ReadAll(c)
		require.ErrorIs(t, err, ErrCut)
		require.Equal(t, "hel", string(got))
		_, err = peer.Write([]byte("more"))
		require.Error(t, err, "both directions are gone")
	})
}

func TestStall(t *testing.T) {
	pair(t, Script{Read: StallAt(2), Write: StallAt(0)}, func(t *testing.T, c *Conn, peer net.Conn) {
		go peer.Write([]byte("abcd"))
		b := make([]byte, 4)
		n, err := c.Read(b)
		require.NoError(t, err)
		require.Equal(t, 2, n)
		start := time.Now()
		require.NoError(t, c.SetReadDeadline(start.Add(time.Second)))
		_, err = c.Read(b)
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		require.Equal(t, time.Second, time.Since(start))
		require.NoError(t, c.SetDeadline(start.Add(2*time.Second)))
		_, err = c.Write(b)
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)

		require.NoError(t, c.SetDeadline(time.Time{}))
		time.AfterFunc(time.Minute, c.Resume)
		_, err = io.ReadFull(c, b[:2])
		require.NoError(t, err)
		require.Equal(t, "cd", string(b[:2]))
		require.Equal(t, time.Minute+2*time.Second, time.Since(start))
		go c.Write([]byte("x"))
		_, err = peer.Read(b)
		require.NoError(t, err)
	})
}

func TestCloseEndsStall(t *testing.T) {
	pair(t, Script{Read: StallAt(0)}, func(t *testing.T, c *Conn, _ net.Conn) {
		time.AfterFunc(time.Second, func() { c.Close() })
		_, err := c.Read(make([]byte, 1))
		require.Error(t, err)
	})
}
