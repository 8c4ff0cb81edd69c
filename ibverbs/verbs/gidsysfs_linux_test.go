package verbs

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/gdrpc/gdrpc/ibverbs"
	"github.com/stretchr/testify/require"
)

// TestGIDSysfs reads a port's directory as kernels write it. A directory stands
// for a file that cannot be read.
func TestGIDSysfs(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	unreadable := func(name string) { require.NoError(t, os.MkdirAll(filepath.Join(dir, name), 0o700)) }
	_, err := gidDir{path: dir}.entries(4)
	require.ErrorIs(t, err, os.ErrNotExist)

	write("gids/0", "fe80:0000:0000:0000:0202:c9ff:fe00:0001\n")
	write("gid_attrs/types/0", "IB/RoCE v1\n")
	write("gid_attrs/ndevs/0", "lo\n")
	write("gids/1", "0000:0000:0000:0000:0000:0000:0000:0000\n")
	unreadable("gid_attrs/types/1")
	write("gids/2", "0000:0000:0000:0000:0000:ffff:0a08:0001\n") // of another container
	unreadable("gid_attrs/types/2")
	write("gids/10", "0000:0000:0000:0000:0000:ffff:0a08:0001\n")
	write("gid_attrs/types/10", "RoCE v2\n")
	write("gid_attrs/ndevs/10", "lo\n") // of another container too: this one does not have the address
	write("gids/11", "0000:0000:0000:0000:0000:ffff:7f00:0001\n")
	write("gid_attrs/types/11", "RoCE v2\n")
	write("gid_attrs/ndevs/11", "lo\n")
	write("gids/12", "0000:0000:0000:0000:0000:ffff:7f00:0001\n")
	write("gid_attrs/types/12", "RoCE v2\n")
	unreadable("gid_attrs/ndevs/12")

	link := ibverbs.GIDEntry{GID: ibverbs.GID{0: 0xfe, 1: 0x80, 8: 2, 9: 2, 10: 0xc9, 11: 0xff, 12: 0xfe, 15: 1}, Type: ibverbs.GIDTypeRoCEv1, NetDev: "lo"}
	v4 := ibverbs.GIDEntry{GID: ibverbs.GID{10: 0xff, 11: 0xff, 12: 10, 13: 8, 15: 1}, Index: 10, Type: ibverbs.GIDTypeRoCEv2}
	own := ibverbs.GIDEntry{GID: ibverbs.GID{10: 0xff, 11: 0xff, 12: 127, 15: 1}, Index: 11, Type: ibverbs.GIDTypeRoCEv2, NetDev: "lo"}
	hidden := own
	hidden.Index, hidden.NetDev = 12, ""
	gids, err := gidDir{path: dir}.entries(16)
	require.NoError(t, err)
	require.Equal(t, []ibverbs.GIDEntry{link, v4, own, hidden}, gids)

	gids, err = gidDir{path: dir}.entries(10)
	require.NoError(t, err)
	require.Equal(t, []ibverbs.GIDEntry{link}, gids)

	link.Type = ibverbs.GIDTypeIB
	gids, err = gidDir{path: dir, ib: true}.entries(1)
	require.NoError(t, err)
	require.Equal(t, []ibverbs.GIDEntry{link}, gids)

	write("gids/0", "nonsense\n")
	_, err = gidDir{path: dir}.entries(1)
	require.ErrorContains(t, err, "gids/0")
}
