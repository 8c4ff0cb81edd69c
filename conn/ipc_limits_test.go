package conn

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/internal/ipc"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// invited is a Conn to which a peer comes that only the test plays.
func invited(t testing.TB, d *Domain) (client, server *Conn, peer *ipc.Socket) {
	t.Helper()
	setups := joinedSetups(t, d, 1)
	inv, err := d.Invite()
	require.NoError(t, err)
	setups[1].Invite = inv
	client, server = newPair(t, d, setups)
	to := inv.IPC()
	peer, err = ipc.Dial(soon(t), to.Socket, ipc.Key{ID: to.ID, Secret: to.Secret})
	require.NoError(t, err)
	t.Cleanup(func() { peer.Close() })
	require.NoError(t, server.AwaitIPC(soon(t)))
	return client, server, peer
}

// TestIPCDomainBound: many peers together cannot take all mappings that the
// system lets a process have.
func TestIPCDomainBound(t *testing.T) {
	d := newDomain(t, quiet())
	f := memfd(t, 4096, unix.F_SEAL_SHRINK)
	announce := func(peer *ipc.Socket, id uint64) error {
		return peer.Send(&ipc.Message{Type: ipc.TypeRegion, Region: id, Kind: uint8(gpubuf.KindHost), Size: 4096, File: f})
	}
	var clients, servers []*Conn
	for range maxDomainRegions / maxRegions {
		client, server, peer := invited(t, d)
		for id := range uint64(maxRegions) {
			require.NoError(t, announce(peer, id+1))
		}
		clients, servers = append(clients, client), append(servers, server)
	}
	for _, s := range servers {
		require.Eventually(t, func() bool { return imports(s) == maxRegions }, patience, tick)
	}
	client, server, peer := invited(t, d)
	require.NoError(t, announce(peer, 1))
	_, err := peer.Receive()
	require.Error(t, err, "the link ends")
	require.Contains(t, server.Stats().IPC, "have it map 16384 regions already")

	closeBoth(clients[0], servers[0])
	closeBoth(client, server)
	_, server, peer = invited(t, d)
	require.NoError(t, announce(peer, 1))
	require.Eventually(t, func() bool { return imports(server) == 1 }, patience, tick)
}

// TestIPCForeignBytes: the sizes that peers announce have a bound too, and what
// is given back can be had again.
func TestIPCForeignBytes(t *testing.T) {
	var f foreignMemory
	for range maxDomainMapped / maxMapped {
		require.NoError(t, f.reserve(maxMapped))
	}
	require.ErrorContains(t, f.reserve(1), "a Domain maps 17592186044416")
	f.release(maxMapped)
	require.NoError(t, f.reserve(1))
}

// withoutDescriptors runs f while this process can open no more descriptors.
func withoutDescriptors(t *testing.T, f func()) {
	t.Helper()
	var old unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &old))
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 3, Max: old.Max}))
	defer func() { require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &old)) }()
	f()
}

// TestIPCOutOfDescriptors: what cannot be shared for want of descriptors is
// shared when there are some again, and the log says once that it was not.
func TestIPCOutOfDescriptors(t *testing.T) {
	var log bytes.Buffer
	src, dst := newPool(t, "shared"), newPool(t, "host")
	client, server := ipcPair(t, &Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	greet(t, client, server)
	const size = 100_000
	s, want := filled(t, src, size, 1)
	o := offer(t, client, s)
	defer o.Withdraw()
	withoutDescriptors(t, func() {
		require.Zero(t, client.Place(o), "no board")
		require.Zero(t, client.Place(o))
	})
	_, err := client.d.ipc.standing()
	require.NoError(t, err)
	withoutDescriptors(t, func() {
		require.Zero(t, client.Place(o), "nothing to pass it with")
		require.Zero(t, client.Place(o))
	})
	require.Equal(t, 2, strings.Count(log.String(), "cannot share memory"), log.String())
	require.Contains(t, log.String(), "too many open files; the process needs more descriptors (ulimit -n)")
	require.Equal(t, PathIPC, move(t, client, server, s, alloc(t, dst, size), want))
}

// TestIPCReceiverOutOfDescriptors: a receiver that cannot take a descriptor says
// so, and its landings go on.
func TestIPCReceiverOutOfDescriptors(t *testing.T) {
	_, server, peer := invited(t, newDomain(t, quiet()))
	f := memfd(t, 4096, unix.F_SEAL_SHRINK)
	withoutDescriptors(t, func() {
		require.NoError(t, peer.Send(&ipc.Message{Type: ipc.TypeRegion, Region: 1, Kind: uint8(gpubuf.KindHost), Size: 4096, File: f}))
		_, err := peer.Receive()
		require.Error(t, err)
	})
	require.Contains(t, server.Stats().IPC, "this process can open no more (ulimit -n)")
}

// TestIPCUnread: a peer that has regions opened and closed and does not read the
// answers cannot have them pile up.
func TestIPCUnread(t *testing.T) {
	_, server, peer := invited(t, newDomain(t, quiet()))
	most := 0
	for err := error(nil); err == nil; {
		err = peer.Send(&ipc.Message{Type: ipc.TypeRegion, Region: 1, Kind: uint8(gpubuf.KindCUDA), Size: 4096, Handle: []byte{1}})
		if err == nil {
			err = peer.Send(&ipc.Message{Type: ipc.TypeEnd, Region: 1})
		}
		server.ipc.mu.Lock()
		most = max(most, len(server.ipc.queue))
		server.ipc.mu.Unlock()
	}
	require.LessOrEqual(t, most, 2*maxQueued)
	require.NotEmpty(t, server.Stats().IPC)
}
