package conn

import (
	"bytes"
	"cmp"
	"context"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"testing"
	"time"

	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/gpubuf/emu"
	"github.com/gdrpc/gdrpc/gpubuf/host"
	"github.com/gdrpc/gdrpc/gpubuf/named"
	"github.com/stretchr/testify/require"
)

// quiet is a configuration whose log nobody reads.
func quiet() *Config { return &Config{Logger: slog.New(slog.DiscardHandler)} }

func newDomain(t testing.TB, cfg *Config) *Domain {
	t.Helper()
	d, err := NewDomain(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	return d
}

// closeBoth closes both ends and waits until everything is given back.
func closeBoth(a, b *Conn) {
	a.Close()
	b.Close()
	<-a.ending.done
	<-b.ending.done
}

// memPair is a pair in memory, its stream on a queue pair.
func memPair(t testing.TB, cfg *Config) (client, server *Conn) {
	t.Helper()
	client, server, err := Pipe(newDomain(t, cfg))
	require.NoError(t, err)
	t.Cleanup(func() { closeBoth(client, server) })
	return client, server
}

// tcpPair is a pair in mode soft-joined on loopback, as a handshake makes it.
func tcpPair(t testing.TB, cfg *Config) (client, server *Conn) { return joinedPair(t, cfg, 1) }

// stripedPair has four bulk lanes.
func stripedPair(t testing.TB, cfg *Config) (client, server *Conn) { return joinedPair(t, cfg, 4) }

func joinedPair(t testing.TB, cfg *Config, bulk int) (client, server *Conn) {
	t.Helper()
	d := newDomain(t, cfg)
	return newPair(t, d, joinedSetups(t, d, bulk))
}

// ipcPair is a pair in mode soft-joined that shares memory.
func ipcPair(t testing.TB, cfg *Config) (client, server *Conn) {
	t.Helper()
	d := newDomain(t, cfg)
	setups := joinedSetups(t, d, 1)
	invite(t, d, &setups)
	client, server = newPair(t, d, setups)
	require.NoError(t, client.AwaitIPC(soon(t)))
	require.NoError(t, server.AwaitIPC(soon(t)))
	return client, server
}

// invite has the two sides share memory, as a handshake does.
func invite(t testing.TB, d *Domain, setups *[2]Setup) {
	t.Helper()
	inv, err := d.Invite()
	require.NoError(t, err)
	to := inv.IPC()
	setups[0].IPC, setups[1].Invite = &to, inv
}

func joinedSetups(t testing.TB, d *Domain, bulk int) (setups [2]Setup) {
	t.Helper()
	stream := socketPair(t)
	for i := range setups {
		setups[i] = Setup{Stream: stream[i], Mode: ModeSoftJoined, Client: i == 0, Gdrpc: true, Checksums: d.cfg.Checksums, Peer: d.Limits()}
	}
	for i := range 1 + bulk {
		kind := LaneBulk
		if i == 0 {
			kind = LaneControl
		}
		lanes, socks := twoLanes(t, d, kind), socketPair(t)
		infos := [2]QPInfo{lanes[0].QPInfo(), lanes[1].QPInfo()}
		for j, l := range lanes {
			require.NoError(t, l.Attach(socks[j], infos[1-j]))
			if i == 0 {
				setups[j].Control = l
			} else {
				setups[j].Bulk = append(setups[j].Bulk, l)
			}
		}
	}
	return setups
}

// sharedPair is a pair in mode soft-shared: everything on one socket.
func sharedPair(t testing.TB, cfg *Config) (client, server *Conn) {
	t.Helper()
	d := newDomain(t, cfg)
	return newPair(t, d, sharedSetups(t, d))
}

// sharedIPCPair is the same with shared memory.
func sharedIPCPair(t testing.TB, cfg *Config) (client, server *Conn) {
	t.Helper()
	d := newDomain(t, cfg)
	setups := sharedSetups(t, d)
	invite(t, d, &setups)
	return newPair(t, d, setups) // the first landings may find the socket on its way
}

func sharedSetups(t testing.TB, d *Domain) (setups [2]Setup) {
	t.Helper()
	var lanes [2][]*Lane
	for _, kind := range []LaneKind{LaneStream, LaneControl, LaneBulk} {
		pair := twoLanes(t, d, kind)
		lanes[0], lanes[1] = append(lanes[0], pair[0]), append(lanes[1], pair[1])
	}
	for i, sock := range socketPair(t) {
		peers := make([]QPInfo, len(lanes[i]))
		for j, l := range lanes[1-i] {
			peers[j] = l.QPInfo()
		}
		require.NoError(t, AttachShared(sock, lanes[i], peers))
		setups[i] = Setup{
			Mode: ModeSoftShared, Client: i == 0, Gdrpc: true, Checksums: d.cfg.Checksums, Peer: d.Limits(),
			StreamLane: lanes[i][0], Control: lanes[i][1], Bulk: lanes[i][2:], Local: sock.LocalAddr(), Remote: sock.RemoteAddr(),
		}
	}
	return setups
}

func newPair(t testing.TB, d *Domain, setups [2]Setup) (client, server *Conn) {
	client, err := New(d, setups[0])
	require.NoError(t, err)
	server, err = New(d, setups[1])
	require.NoError(t, err)
	t.Cleanup(func() { closeBoth(client, server) })
	return client, server
}

func twoLanes(t testing.TB, d *Domain, kind LaneKind) (pair [2]*Lane) {
	for i := range pair {
		var err error
		pair[i], err = d.NewLane(kind)
		require.NoError(t, err)
	}
	return pair
}

// socketPair returns the two ends of a TCP connection on loopback.
func socketPair(t testing.TB) [2]net.Conn {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	a, err := net.Dial("tcp", ln.Addr().String())
	require.NoError(t, err)
	b, err := ln.Accept()
	require.NoError(t, err)
	return [2]net.Conn{a, b}
}

// pairs are the kinds of pairs that every test of both lanes runs on.
var pairs = []struct {
	name string
	make func(testing.TB, *Config) (client, server *Conn)
}{
	{"memory", memPair},
	{"soft-joined", tcpPair},
	{"striped", stripedPair},
	{"soft-shared", sharedPair},
	{"ipc", ipcPair},
	{"verbs", verbsPair},
	{"verbs, staged", stagedPair},
	{"ipc, soft-shared", sharedIPCPair},
}

// greet sends the HTTP/2 preface from client to server, so that attachments may
// leave the stream.
func greet(t testing.TB, client, server *Conn) {
	t.Helper()
	_, err := client.Write([]byte(http2Preface))
	require.NoError(t, err)
	_, err = io.ReadFull(server, make([]byte, len(http2Preface)))
	require.NoError(t, err)
	require.NoError(t, client.Offload())
	require.NoError(t, server.Offload())
}

// pools are the kinds of memory that landings are tested between.
var pools = map[string]func(t testing.TB) gpubuf.Device{
	"host":   func(testing.TB) gpubuf.Device { return host.New() },
	"shared": func(testing.TB) gpubuf.Device { return host.NewShared() },
	// An emulated GPU, unless the environment names another, such as "cuda:0".
	"emu": func(t testing.TB) gpubuf.Device {
		d, err := named.Open(cmp.Or(os.Getenv(deviceEnv), "emu"))
		require.NoError(t, err)
		return d
	},
	"async": func(t testing.TB) gpubuf.Device {
		d, err := emu.NewAsync(nil, &emu.AsyncConfig{Delay: 100 * time.Microsecond})
		require.NoError(t, err)
		return d
	},
}

func newPool(t testing.TB, kind string) *gpubuf.Pool {
	t.Helper()
	return poolOf(t, pools[kind](t))
}

// poolOf returns a pool of dev, which it closes. A Conn that stages for a device
// with pinned memory must be made later, so that it is closed before.
func poolOf(t testing.TB, dev gpubuf.Device) *gpubuf.Pool {
	t.Helper()
	p, err := gpubuf.NewPool(gpubuf.Config{Device: dev})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, p.Close())
		require.NoError(t, dev.Close())
	})
	return p
}

// newPoolAt makes a pool of the emulated GPU with that index.
func newPoolAt(t testing.TB, index int) *gpubuf.Pool {
	t.Helper()
	dev, err := emu.New(&emu.Config{Index: index})
	require.NoError(t, err)
	p, err := gpubuf.NewPool(gpubuf.Config{Device: dev})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, p.Close())
		require.NoError(t, dev.Close())
	})
	return p
}

// filled returns a slice with a pattern that depends on seed, and the pattern.
func filled(t testing.TB, p *gpubuf.Pool, size int, seed byte) (*gpubuf.Slice, []byte) {
	t.Helper()
	b := make([]byte, size)
	rand.NewChaCha8([32]byte{seed}).Read(b)
	s, err := p.Alloc(context.Background(), int64(size))
	require.NoError(t, err)
	require.NoError(t, s.CopyIn(0, b))
	t.Cleanup(s.Free)
	return s, b
}

func alloc(t testing.TB, p *gpubuf.Pool, size int) *gpubuf.Slice {
	t.Helper()
	s, err := p.Alloc(context.Background(), int64(size))
	require.NoError(t, err)
	t.Cleanup(s.Free)
	return s
}

func requireBytes(t testing.TB, want []byte, s *gpubuf.Slice) {
	t.Helper()
	got := make([]byte, s.Len())
	require.NoError(t, s.CopyOut(got, 0))
	require.True(t, bytes.Equal(want, got), "%d bytes differ", len(want))
}

// soon is a context for what must not take long.
func soon(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}
