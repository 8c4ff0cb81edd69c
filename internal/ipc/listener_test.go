package ipc

import (
	"context"
	"fmt"
	"net"
	"os"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestHerd: connections that all come at once all get through.
func TestHerd(t *testing.T) {
	const herd = 800
	k := NewKey()
	taken := make(chan *Socket, herd)
	l, err := Listen(
		func(id [16]byte) (Key, bool) { return k, id == k.ID },
		func(_ Key, s *Socket) { taken <- s },
	)
	require.NoError(t, err)
	ctx := soon(t)
	errs := make(chan error, herd)
	var wg sync.WaitGroup
	for range herd {
		wg.Go(func() {
			s, err := Dial(ctx, l.Name(), k)
			if err == nil {
				s.Close()
			}
			errs <- err
		})
	}
	wg.Wait()
	close(errs)
	bad := map[string]int{}
	for err := range errs {
		if err != nil {
			bad[err.Error()]++
		}
	}
	require.NoError(t, l.Close())
	close(taken)
	for s := range taken {
		s.Close()
	}
	require.Empty(t, bad)
}

// TestQueueFull: a listener that does not get round to accepting is waited for,
// and not taken for one that is not there.
func TestQueueFull(t *testing.T) {
	k := NewKey()
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	name := ownName()
	require.NoError(t, unix.Bind(fd, &unix.SockaddrUnix{Name: "@" + name}))
	require.NoError(t, unix.Listen(fd, 0))
	f := os.NewFile(uintptr(fd), name)
	c, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Net: "unixpacket", Name: "@" + name})
	require.NoError(t, err)
	defer c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 3*dialPause)
	defer cancel()
	_, err = Dial(ctx, name, k)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorIs(t, err, ErrBusy)

	ln, err := net.FileListener(f)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	defer ln.Close()
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			(&Socket{c: c.(*net.UnixConn)}).admit(func([16]byte) (Key, bool) { return k, true }, func() bool { return true })
			c.Close()
		}
	}()
	c.Close() // what waited in its place proves nothing
	s, err := Dial(soon(t), name, k)
	require.NoError(t, err)
	s.Close()
}

// TestHalfProofs: sockets that prove nothing keep no other one out.
func TestHalfProofs(t *testing.T) {
	k := NewKey()
	l, _ := serve(t, k)
	for range 3 * maxProofs {
		c, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Net: "unixpacket", Name: "@" + l.Name()})
		require.NoError(t, err)
		defer c.Close()
	}
	s, err := Dial(soon(t), l.Name(), k)
	require.NoError(t, err)
	s.Close()
}

// TestEvictedIsNotWelcome: a socket that made room for others at the end of its proof
// is not told that it is welcome, so that its client tries again.
func TestEvictedIsNotWelcome(t *testing.T) {
	k, name := NewKey(), fmt.Sprintf("gdrpc-test-%d-evicted", os.Getpid())
	ln, err := net.ListenUnix("unixpacket", &net.UnixAddr{Net: "unixpacket", Name: "@" + name})
	require.NoError(t, err)
	ended := make(chan struct{})
	defer func() {
		ln.Close()
		<-ended
	}()
	go func() {
		defer close(ended)
		for evicted := true; ; evicted = false {
			c, err := ln.AcceptUnix()
			if err != nil {
				return
			}
			s := &Socket{c: c}
			s.admit(func([16]byte) (Key, bool) { return k, true }, func() bool { return !evicted })
			s.Close()
		}
	}()
	s, err := attempt(soon(t), name, &k)
	require.ErrorIs(t, err, ErrBusy)
	require.Nil(t, s)
	s, err = Dial(soon(t), name, k)
	require.NoError(t, err)
	s.Close()
}
