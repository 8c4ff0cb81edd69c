package conn

import (
	"os"
	"testing"
	"time"

	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/gpubuf/host"
	"github.com/gdrpc/gdrpc/internal/ipc"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

const (
	patience = time.Minute
	tick     = 2 * time.Millisecond
)

// memfd makes a memfd with the given seals.
func memfd(t testing.TB, size int64, seals int) *os.File {
	t.Helper()
	fd, err := unix.MemfdCreate("gdrpc-test", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	require.NoError(t, err)
	require.NoError(t, unix.Ftruncate(fd, size))
	if seals != 0 {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals)
		require.NoError(t, err)
	}
	f := os.NewFile(uintptr(fd), "memfd")
	t.Cleanup(func() { f.Close() })
	return f
}

// hugeMemfd makes a memfd whose pages do not exist.
func hugeMemfd(t testing.TB, size int64) *os.File {
	t.Helper()
	fd, err := unix.MemfdCreate("gdrpc-test", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING|unix.MFD_HUGETLB)
	require.NoError(t, err)
	f := os.NewFile(uintptr(fd), "memfd")
	t.Cleanup(func() { f.Close() })
	require.NoError(t, unix.Ftruncate(fd, size))
	_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK)
	require.NoError(t, err)
	return f
}

func opened(t testing.TB, name string, flags int) *os.File {
	t.Helper()
	f, err := os.OpenFile(name, flags, 0)
	require.NoError(t, err)
	t.Cleanup(func() { f.Close() })
	return f
}

// TestIPCHostile has a peer that knows the secret announce what it must not:
// the link ends with the reason, and landings go on over the lanes.
func TestIPCHostile(t *testing.T) {
	const size, sealed = 4096, unix.F_SEAL_SHRINK
	region := func(id uint64, size int64, f *os.File) *ipc.Message {
		return &ipc.Message{Type: ipc.TypeRegion, Region: id, Kind: uint8(gpubuf.KindHost), Size: size, File: f}
	}
	r, w, err := os.Pipe()
	require.NoError(t, err)
	t.Cleanup(func() { r.Close(); w.Close() })
	good := memfd(t, size, sealed)
	file := opened(t, os.Args[0], os.O_RDONLY)
	info, err := file.Stat()
	require.NoError(t, err)
	for name, tt := range map[string]struct {
		say []*ipc.Message
		why string
	}{
		"no seals":         {[]*ipc.Message{region(1, size, memfd(t, size, 0))}, "without F_SEAL_SHRINK"},
		"sealed to grow":   {[]*ipc.Message{region(1, size, memfd(t, size, unix.F_SEAL_GROW))}, "without F_SEAL_SHRINK"},
		"huge pages":       {[]*ipc.Message{region(1, 2<<20, hugeMemfd(t, 2<<20))}, "such as of huge pages"},
		"smaller":          {[]*ipc.Message{region(1, 2*size, good)}, "4096 bytes where 8192 are announced"},
		"larger":           {[]*ipc.Message{region(1, size/2, good)}, "4096 bytes where 2048 are announced"},
		"huge":             {[]*ipc.Message{region(1, 1<<62, good)}, "more than 274877906944 bytes"},
		"a file":           {[]*ipc.Message{region(1, info.Size(), file)}, "not a memfd"},
		"a pipe":           {[]*ipc.Message{region(1, size, r)}, "not a memfd"},
		"a device":         {[]*ipc.Message{region(1, size, opened(t, "/dev/zero", os.O_RDONLY))}, "not a memfd"},
		"a folder":         {[]*ipc.Message{region(1, size, opened(t, "/", unix.O_PATH))}, "not a memfd"},
		"twice":            {[]*ipc.Message{region(1, size, good), region(1, size, good)}, "announced twice"},
		"again after end":  {[]*ipc.Message{{Type: ipc.TypeEnd, Region: 3}}, "end of region 3, which was not announced"},
		"handle as a file": {[]*ipc.Message{{Type: ipc.TypeRegion, Region: 1, Kind: uint8(gpubuf.KindCUDA), Size: size, File: good}}, "a descriptor for cuda memory"},
		"handle for host":  {[]*ipc.Message{{Type: ipc.TypeRegion, Region: 1, Kind: uint8(gpubuf.KindHost), Size: size, Handle: []byte{1}}}, "no descriptor came with it"},
		"two boards": {[]*ipc.Message{
			{Type: ipc.TypeBoard, Size: size, File: good}, {Type: ipc.TypeBoard, Size: size, File: good},
		}, "a second board"},
		"board too large": {[]*ipc.Message{{Type: ipc.TypeBoard, Size: 1 << 30, File: good}}, "the peer's board has"},
		"board unsealed":  {[]*ipc.Message{{Type: ipc.TypeBoard, Size: size, File: memfd(t, size, 0)}}, "without F_SEAL_SHRINK"},
		"region 0":        {[]*ipc.Message{region(0, size, good)}, "malformed"},
		"no size":         {[]*ipc.Message{region(1, 0, good)}, "malformed"},
		"negative size":   {[]*ipc.Message{region(1, -1, good)}, "malformed"},
		"no such type":    {[]*ipc.Message{{Type: 99, Region: 1}}, "malformed"},
		"file with end":   {[]*ipc.Message{{Type: ipc.TypeEnd, Region: 1, File: good}}, "malformed"},
		"no file":         {[]*ipc.Message{region(1, size, nil)}, "malformed"},
		"long handle": {[]*ipc.Message{{
			Type: ipc.TypeRegion, Region: 1, Kind: uint8(gpubuf.KindCUDA), Size: size, Handle: make([]byte, ipc.MaxHandle+1),
		}}, "malformed"},
	} {
		t.Run(name, func(t *testing.T) {
			pool := newPool(t, "shared")
			d := newDomain(t, quiet())
			setups := joinedSetups(t, d, 1)
			inv, err := d.Invite()
			require.NoError(t, err)
			setups[1].Invite = inv
			client, server := newPair(t, d, setups)
			greet(t, client, server)
			to := inv.IPC()
			sock, err := ipc.Dial(soon(t), to.Socket, ipc.Key{ID: to.ID, Secret: to.Secret})
			require.NoError(t, err)
			defer sock.Close()
			require.NoError(t, server.AwaitIPC(soon(t)))
			for _, m := range tt.say {
				require.NoError(t, sock.Send(m))
			}
			_, err = sock.Receive()
			require.Error(t, err, "the peer closes")
			require.Contains(t, server.Stats().IPC, tt.why)
			require.Zero(t, imports(server))
			s, want := filled(t, pool, 100_000, 1)
			require.Equal(t, PathSoft, move(t, client, server, s, alloc(t, pool, 100_000), want))
		})
	}
}

// TestIPCTooMany: a peer cannot have more regions mapped than the limit.
func TestIPCTooMany(t *testing.T) {
	d := newDomain(t, quiet())
	setups := joinedSetups(t, d, 1)
	inv, err := d.Invite()
	require.NoError(t, err)
	setups[1].Invite = inv
	_, server := newPair(t, d, setups)
	to := inv.IPC()
	sock, err := ipc.Dial(soon(t), to.Socket, ipc.Key{ID: to.ID, Secret: to.Secret})
	require.NoError(t, err)
	defer sock.Close()
	f := memfd(t, 4096, unix.F_SEAL_SHRINK)
	for id := range uint64(maxRegions + 1) {
		if sock.Send(&ipc.Message{Type: ipc.TypeRegion, Region: id + 1, Kind: uint8(gpubuf.KindHost), Size: 4096, File: f}) != nil {
			break // it is closed already
		}
	}
	for err == nil {
		_, err = sock.Receive()
	}
	require.Contains(t, server.Stats().IPC, "more than 1024 regions")
	require.Zero(t, imports(server))
}

// TestIPCReadOnly: whoever is handed what this process shares cannot write to it.
func TestIPCReadOnly(t *testing.T) {
	for _, kind := range []string{"shared", "emu"} {
		s := alloc(t, newPool(t, kind), 4096)
		share, err := s.Region().Share()
		require.NoError(t, err)
		defer share.File.Close()
		_, err = share.File.WriteAt([]byte{1}, 0)
		require.ErrorIs(t, err, unix.EPERM)
		_, err = unix.Mmap(int(share.File.Fd()), 0, int(share.Size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		require.ErrorIs(t, err, unix.EPERM)
		require.ErrorIs(t, unix.Ftruncate(int(share.File.Fd()), 0), unix.EPERM)
		v, err := host.OpenView(share)
		require.NoError(t, err)
		require.NoError(t, v.Close())
	}
}
