package ipc

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// golden are messages and their bytes.
var golden = []struct {
	m Message
	b string
}{
	{Message{Type: TypeBoard, Size: 4096}, "\x05\x00" + "\x00\x00\x00\x00\x00\x00\x00\x00" + "\x00\x00\x00\x00\x00\x00\x10\x00"},
	{Message{Type: TypeRegion, Region: 258, Kind: 1, Size: 1 << 21}, "\x06\x01" + "\x00\x00\x00\x00\x00\x00\x01\x02" + "\x00\x00\x00\x00\x00\x20\x00\x00"},
	{Message{Type: TypeRegion, Region: 1, Kind: 3, Size: 1, Handle: []byte("abc")}, "\x06\x03" + "\x00\x00\x00\x00\x00\x00\x00\x01" + "\x00\x00\x00\x00\x00\x00\x00\x01" + "abc"},
	{Message{Type: TypeEnd, Region: 1 << 56}, "\x07\x00" + "\x01\x00\x00\x00\x00\x00\x00\x00" + "\x00\x00\x00\x00\x00\x00\x00\x00"},
	{Message{Type: TypeClosed, Region: 3}, "\x08\x00" + "\x00\x00\x00\x00\x00\x00\x00\x03" + "\x00\x00\x00\x00\x00\x00\x00\x00"},
}

func TestMessageGolden(t *testing.T) {
	for _, g := range golden {
		require.Equal(t, g.b, string(g.m.encode(nil)))
		var m Message
		require.NoError(t, m.decode([]byte(g.b)))
		require.Equal(t, g.m, m)
	}
}

func FuzzMessage(f *testing.F) {
	for _, g := range golden {
		f.Add([]byte(g.b))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var m Message
		if m.decode(b) != nil {
			return
		}
		require.Equal(t, string(b), string(m.encode(nil)))
		require.LessOrEqual(t, len(m.Handle), MaxHandle)
	})
}

// TestDescriptors: a descriptor arrives with its message, closed on exec, and
// others than that one are closed with their message.
func TestDescriptors(t *testing.T) {
	client, server := pair(t)
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer r.Close()
	defer w.Close()
	require.NoError(t, client.Send(&Message{Type: TypeRegion, Region: 1, Size: 1, File: w}))
	m, err := server.Receive()
	require.NoError(t, err)
	flags, err := unix.FcntlInt(m.File.Fd(), unix.F_GETFD, 0)
	require.NoError(t, err)
	require.NotZero(t, flags&unix.FD_CLOEXEC)
	require.NoError(t, m.File.Close())

	region := (&Message{Type: TypeRegion, Region: 1, Size: 1}).encode(nil)
	end := (&Message{Type: TypeEnd, Region: 1}).encode(nil)
	for name, tt := range map[string]struct {
		b   []byte
		fds []int
	}{
		"two":       {region, []int{int(w.Fd()), int(w.Fd())}},
		"many":      {region, slicesOf(int(w.Fd()), 100)},
		"none":      {region, nil},
		"with end":  {end, []int{int(w.Fd())}},
		"too long":  {append(region, make([]byte, maxPacket)...), []int{int(w.Fd())}},
		"too short": {region[:3], []int{int(w.Fd())}},
	} {
		t.Run(name, func(t *testing.T) {
			before := descriptors(t)
			_, _, err := client.c.WriteMsgUnix(tt.b, unix.UnixRights(tt.fds...), nil)
			require.NoError(t, err)
			_, err = server.Receive()
			require.ErrorIs(t, err, ErrMalformed)
			require.Equal(t, before, descriptors(t))
		})
	}
}

func slicesOf(fd, n int) (fds []int) {
	for range n {
		fds = append(fds, fd)
	}
	return fds
}

func descriptors(t testing.TB) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return len(list)
}

// TestInterrupt ends a Receive that waits; AwaitEnd still hears the end.
func TestInterrupt(t *testing.T) {
	client, server := pair(t)
	done := make(chan error)
	go func() {
		_, err := server.Receive()
		done <- err
	}()
	server.Interrupt()
	require.ErrorIs(t, <-done, os.ErrDeadlineExceeded)
	go func() {
		server.AwaitEnd()
		done <- nil
	}()
	_, err := client.Receive()
	require.Error(t, err, "the server says no more")
	require.NoError(t, client.Send(&Message{Type: TypeClosed, Region: 1}))
	require.NoError(t, client.Close())
	require.NoError(t, <-done)
}

// TestSendBound: a peer that does not read cannot hold a sender for ever.
func TestSendBound(t *testing.T) {
	client, _ := pair(t)
	var err error
	for err == nil {
		err = client.Send(&Message{Type: TypeEnd, Region: 1})
	}
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
}
