package ipc

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gdrpc/gdrpc/internal/skip"
)

// patience bounds every wait; no test passes by waiting it out.
const patience = time.Minute

func soon(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// ownName is an abstract name that no other process of this machine has, such as
// one that runs the same tests.
func ownName() string { return "gdrpc-test-" + rand.Text() }

// serve listens for one key. What has proved it comes out of the channel.
func serve(t testing.TB, k Key) (*Listener, <-chan *Socket) {
	t.Helper()
	taken := make(chan *Socket, 100)
	l, err := Listen(
		func(id [16]byte) (Key, bool) { return k, id == k.ID },
		func(_ Key, s *Socket) { taken <- s },
	)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, l.Close())
		close(taken)
		for s := range taken {
			s.Close()
		}
	})
	return l, taken
}

// pair is the two ends of a socket that has been proved.
func pair(t testing.TB) (client, server *Socket) {
	t.Helper()
	k := NewKey()
	l, taken := serve(t, k)
	client, err := Dial(soon(t), l.Name(), k)
	require.NoError(t, err)
	server = <-taken
	t.Cleanup(func() { client.Close(); server.Close() })
	return client, server
}

func TestProof(t *testing.T) {
	client, server := pair(t)
	for _, way := range [][2]*Socket{{client, server}, {server, client}} {
		require.NoError(t, way[0].Send(&Message{Type: TypeEnd, Region: 7}))
		m, err := way[1].Receive()
		require.NoError(t, err)
		require.Equal(t, &Message{Type: TypeEnd, Region: 7}, m)
	}
	require.NoError(t, client.Close())
	_, err := server.Receive()
	require.ErrorIs(t, err, io.EOF)
}

func TestProofRefused(t *testing.T) {
	k := NewKey()
	l, taken := serve(t, k)
	other := NewKey()
	_, err := Dial(soon(t), l.Name(), other)
	require.ErrorIs(t, err, ErrUnknown)
	other.ID = k.ID
	_, err = Dial(soon(t), l.Name(), other)
	require.ErrorIs(t, err, ErrProof)
	_, err = Dial(soon(t), l.Name()+"x", k)
	require.ErrorIs(t, err, ErrElsewhere)
	require.Empty(t, taken)
	s, err := Dial(soon(t), l.Name(), k)
	require.NoError(t, err)
	s.Close()
}

// TestProofServer: a server that does not know the secret is none.
func TestProofServer(t *testing.T) {
	k, wrong := NewKey(), NewKey()
	wrong.ID = k.ID
	name := ownName()
	ln, err := net.ListenUnix("unixpacket", &net.UnixAddr{Net: "unixpacket", Name: "@" + name})
	require.NoError(t, err)
	defer ln.Close()
	go func() {
		c, err := ln.AcceptUnix()
		if err != nil {
			return
		}
		defer c.Close()
		s := &Socket{c: c}
		server := newNonce()
		s.write(append([]byte{byte(typeChallenge)}, server[:]...), nil)
		b, err := s.packet(typeProof, 16+nonceSize+32)
		if err != nil {
			return
		}
		client := nonce(b[16:])
		s.write(append([]byte{byte(typeWelcome)}, wrong.mac("server", server, client)...), nil)
		s.read() // until the client has hung up
	}()
	_, err = Dial(soon(t), name, k)
	require.ErrorIs(t, err, ErrProof)
}

// TestProofBound: Dial ends with its context where nobody answers.
func TestProofBound(t *testing.T) {
	name := ownName()
	ln, err := net.ListenUnix("unixpacket", &net.UnixAddr{Net: "unixpacket", Name: "@" + name})
	require.NoError(t, err)
	defer ln.Close()
	ctx, cancel := context.WithCancel(context.Background())
	time.AfterFunc(time.Millisecond, cancel)
	_, err = Dial(ctx, name, NewKey())
	require.ErrorIs(t, err, context.Canceled)
}

// TestProofGarbage has clients say what is no proof; the listener goes on.
func TestProofGarbage(t *testing.T) {
	k := NewKey()
	l, taken := serve(t, k)
	for name, b := range map[string][]byte{
		"short":     {byte(typeProof)},
		"long":      make([]byte, maxPacket+1),
		"wrong":     append([]byte{byte(typeWelcome)}, make([]byte, 16+nonceSize+32)...),
		"a refusal": {byte(typeRefused), 2},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Net: "unixpacket", Name: "@" + l.Name()})
			require.NoError(t, err)
			defer c.Close()
			s := &Socket{c: c}
			_, err = s.packet(typeChallenge, nonceSize)
			require.NoError(t, err)
			require.NoError(t, s.write(b, nil))
			_, _, err = s.read()
			require.Error(t, err)
		})
	}
	require.Empty(t, taken)
	s, err := Dial(soon(t), l.Name(), k)
	require.NoError(t, err)
	s.Close()
}

// TestOtherUser: neither side takes a process of another user for its peer.
func TestOtherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		skip.Missing(t, "root", errors.New("this process cannot become another user"), "run the test as root")
	}
	const nobody = 65534
	k := NewKey()
	l, taken := serve(t, k)
	asUser(t, nobody, func() {
		_, err := Dial(soon(t), l.Name(), k)
		require.ErrorIs(t, err, ErrOtherUser)
		require.ErrorContains(t, err, "uid 0, this process has 65534")
		c, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Net: "unixpacket", Name: "@" + l.Name()})
		require.NoError(t, err)
		defer c.Close()
		require.ErrorIs(t, (&Socket{c: c}).prove(&k), ErrOtherUser, "the server says so")
	})
	require.Empty(t, taken)
}

// asUser runs f on a thread whose effective user is another, which the sockets
// that it connects then show (credentials(7): each thread has its own).
func asUser(t *testing.T, uid int, f func()) {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	set := func(uid int) {
		_, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, ^uintptr(0), uintptr(uid), ^uintptr(0))
		require.Zero(t, errno)
	}
	set(uid)
	defer set(0)
	f()
}

// TestOtherNamespace: abstract names end at the network namespace.
func TestOtherNamespace(t *testing.T) {
	k := NewKey()
	l, taken := serve(t, k)
	type outcome struct{ unshare, dial error }
	done := make(chan outcome)
	go func() {
		runtime.LockOSThread() // for good: the thread ends with this goroutine
		var o outcome
		if o.unshare = unix.Unshare(unix.CLONE_NEWNET); o.unshare == nil {
			_, o.dial = Dial(soon(t), l.Name(), k)
		}
		done <- o
	}()
	o := <-done
	if o.unshare != nil {
		skip.Missing(t, "root", o.unshare, "run the test as root: it makes a network namespace")
	}
	require.ErrorIs(t, o.dial, ErrElsewhere)
	require.Empty(t, taken)
}
