package topology

import (
	"slices"
	"testing"

	"github.com/gdrpc/gdrpc/internal/leak/leaktest"
	"github.com/gdrpc/gdrpc/internal/sysfs/sysfstest"
	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// tree reads a machine of testdata.
func tree(t *testing.T, machine string) *Tree {
	t.Helper()
	tr, err := Read(sysfstest.Expand(t, "testdata/"+machine+".txt"))
	require.NoError(t, err)
	return tr
}

func names(nics []NIC) []string {
	list := make([]string, len(nics))
	for i, n := range nics {
		list[i] = n.Name
	}
	return list
}

// only keeps the NICs of these names.
func only(nics []NIC, keep ...string) []NIC {
	return slices.DeleteFunc(slices.Clone(nics), func(n NIC) bool { return !slices.Contains(keep, n.Name) })
}

// pick is what one GPU gets.
type pick struct {
	nics  []string
	class Class
}

func picks(t *Tree, nics []NIC) map[string]pick {
	got := make(map[string]pick)
	for _, g := range t.GPUs() {
		best, class := t.Nearest(string(g.BusID), nics)
		got[string(g.BusID)] = pick{names(best), class}
	}
	return got
}

func one(name string, class Class) pick { return pick{[]string{name}, class} }

func TestNearest(t *testing.T) {
	tests := []struct {
		machine string
		want    map[string]pick
	}{
		{"hgx-8x8", map[string]pick{
			"0000:1b:00.0": one("mlx5_0", PIX), "0000:43:00.0": one("mlx5_3", PIX),
			"0000:52:00.0": one("mlx5_4", PIX), "0000:61:00.0": one("mlx5_5", PIX),
			"0000:9d:00.0": one("mlx5_6", PIX), "0000:c3:00.0": one("mlx5_9", PIX),
			"0000:d1:00.0": one("mlx5_10", PIX), "0000:df:00.0": one("mlx5_11", PIX),
		}},
		{"switch-2x2", map[string]pick{
			"0000:07:00.0": one("mlx5_0", PIX), "0000:0f:00.0": one("mlx5_1", PIX),
			"0000:47:00.0": one("mlx5_2", PIX), "0000:4e:00.0": one("mlx5_3", PIX),
			"0000:87:00.0": one("mlx5_4", PIX), "0000:90:00.0": one("mlx5_5", PIX),
			"0000:b7:00.0": one("mlx5_6", PIX), "0000:bd:00.0": one("mlx5_7", PIX),
		}},
		{"2-nics-8-gpus", map[string]pick{
			"0000:18:00.0": one("mlx5_0", NODE), "0000:2b:00.0": one("mlx5_0", NODE),
			"0000:3e:00.0": one("mlx5_0", NODE), "0000:51:00.0": one("mlx5_0", NODE),
			"0000:98:00.0": one("mlx5_1", NODE), "0000:ab:00.0": one("mlx5_1", NODE),
			"0000:be:00.0": one("mlx5_1", NODE), "0000:d1:00.0": one("mlx5_1", NODE),
		}},
		{"one-sided", map[string]pick{ // four each, although both are near the same four
			"0000:18:00.0": one("mlx5_0", NODE), "0000:2b:00.0": one("mlx5_1", NODE),
			"0000:3e:00.0": one("mlx5_0", NODE), "0000:51:00.0": one("mlx5_1", NODE),
			"0000:98:00.0": one("mlx5_0", SYS), "0000:ab:00.0": one("mlx5_1", SYS),
			"0000:be:00.0": one("mlx5_0", SYS), "0000:d1:00.0": one("mlx5_1", SYS),
		}},
		{"cascade", map[string]pick{
			"0000:25:00.0": one("mlx5_0", PIX), "0000:29:00.0": one("mlx5_0", PXB),
		}},
		{"1-nic-1-gpu", map[string]pick{"0000:18:00.0": one("mlx5_0", SYS)}},
		{"vm-flat", map[string]pick{"0000:00:05.0": one("mlx5_0", PHB)}},
		{"vm-vmbus", map[string]pick{
			"0001:00:00.0": one("mlx5_ib0", NODE), "10002:00:00.0": one("mlx5_ib1", NODE),
		}},
		{"bond-and-vfs", map[string]pick{
			"0000:18:00.0": one("mlx5_bond_0", PIX), "0000:31:00.0": one("mlx5_2", PHB),
		}},
		{"nothing", map[string]pick{}},
	}
	for _, tt := range tests {
		t.Run(tt.machine, func(t *testing.T) {
			tr := tree(t, tt.machine)
			nics := tr.NICs()
			require.Equal(t, tt.want, picks(tr, nics))
			slices.Reverse(nics)
			require.Equal(t, tt.want, picks(tr, nics), "the order of the NICs must not matter")
		})
	}
}

// TestNearestSome has the caller leave NICs out, because their ports are down
// say.
func TestNearestSome(t *testing.T) {
	tr := tree(t, "switch-2x2")
	all := tr.NICs()

	best, class := tr.Nearest("0000:07:00.0", only(all, "mlx5_1", "mlx5_2"))
	require.Equal(t, one("mlx5_1", PIX), pick{names(best), class}, "the switch's other NIC")
	best, class = tr.Nearest("0000:07:00.0", only(all, "mlx5_2", "mlx5_7"))
	require.Equal(t, one("mlx5_2", NODE), pick{names(best), class}, "the socket's other switch")
	best, class = tr.Nearest("0000:07:00.0", nil)
	require.Empty(t, best)
	require.Equal(t, Unknown, class)
	for id, p := range picks(tr, only(all, "mlx5_7")) {
		require.Equal(t, []string{"mlx5_7"}, p.nics, id)
	}
}

// TestNearestSeveral has more NICs than GPUs: a GPU has several then.
func TestNearestSeveral(t *testing.T) {
	tr := tree(t, "hgx-8x8")
	storage := only(tr.NICs(), "mlx5_1", "mlx5_2", "mlx5_7", "mlx5_8")
	users := make(map[string]int)
	for _, p := range picks(tr, storage) {
		require.Equal(t, NODE, p.class)
		require.Len(t, p.nics, 1)
		users[p.nics[0]]++
	}
	require.Equal(t, map[string]int{"mlx5_1": 2, "mlx5_2": 2, "mlx5_7": 2, "mlx5_8": 2}, users)

	lone := tree(t, "vm-flat")
	nics := append(lone.NICs(), NIC{Name: "twin", BusID: "0000:00:02.0"})
	best, class := lone.Nearest("0000:00:05.0", nics)
	require.Equal(t, pick{[]string{"twin", "mlx5_0"}, PHB}, pick{names(best), class})
}

// TestNearestLeastChoiceFirst: a GPU with a NIC of its own leaves the shared one
// to a GPU that comes before it but is free to choose.
func TestNearestLeastChoiceFirst(t *testing.T) {
	place := func(path ...string) function { return function{path: append([]string{"pci0000:00"}, path...)} }
	tr := &Tree{
		gpus: []GPU{{BusID: "0000:01:00.0"}, {BusID: "0000:05:00.0"}},
		functions: map[BusID]function{
			"0000:01:00.0": place("0000:00:01.0", "0000:01:00.0"),
			"0000:04:00.0": place("0000:00:02.0", "0000:02:00.0", "0000:03:00.0", "0000:04:00.0"),
			"0000:05:00.0": place("0000:00:02.0", "0000:02:00.0", "0000:03:01.0", "0000:05:00.0"),
			"0000:06:00.0": place("0000:00:03.0", "0000:06:00.0"),
		},
	}
	nics := []NIC{{Name: "beside", BusID: "0000:04:00.0"}, {Name: "apart", BusID: "0000:06:00.0"}}
	require.Equal(t, map[string]pick{"0000:01:00.0": one("apart", PHB), "0000:05:00.0": one("beside", PIX)}, picks(tr, nics))
}

func TestNearestVirtualFunctions(t *testing.T) {
	tr := tree(t, "bond-and-vfs")
	best, class := tr.Nearest("0000:31:00.0", only(tr.NICs(), "mlx5_4", "mlx5_3", "rxe0"))
	require.Equal(t, one("mlx5_3", PHB), pick{names(best), class}, "two of one NIC are no two NICs")
}

func TestNearestUnplaced(t *testing.T) {
	tr := tree(t, "bond-and-vfs")
	best, class := tr.Nearest("0000:18:00.0", only(tr.NICs(), "rxe0"))
	require.Equal(t, one("rxe0", Unknown), pick{names(best), class})
	for _, gpu := range []string{"0000:77:00.0", "no bus id"} { // hidden by a container; an emulated one
		best, class = tr.Nearest(gpu, only(tr.NICs(), "mlx5_2", "rxe0"))
		require.NotEmpty(t, best, gpu)
		require.Equal(t, Unknown, class, gpu)
	}
}

func TestLinks(t *testing.T) {
	type link struct {
		nic   string
		class Class
		rank  int
	}
	links := func(tr *Tree, gpu string) (got []link) {
		for _, l := range tr.Links(gpu, tr.NICs()) {
			got = append(got, link{l.NIC.Name, l.Class, l.Rank})
		}
		return got
	}
	require.Equal(t, []link{
		{"mlx5_bond_0", PIX, 0}, {"mlx5_2", NODE, 1}, {"mlx4_0", NODE, 1}, {"mlx5_3", NODE, 1}, {"mlx5_4", NODE, 1},
		{"rxe0", Unknown, 2}, {"siw0", Unknown, 2},
	}, links(tree(t, "bond-and-vfs"), "0000:18:00.0"))
	require.Equal(t, []link{{"mlx5_0", PXB, 0}, {"mlx5_1", PHB, 1}}, links(tree(t, "cascade"), "0000:29:00.0"))
	require.Empty(t, links(tree(t, "nothing"), "0000:29:00.0"))
}

func TestSpellings(t *testing.T) {
	tr := tree(t, "hgx-8x8")
	for _, s := range []string{"0000:1b:00.0", "00000000:1B:00.0", "0000:1B:00.0", "1b:00.0", " 00000000:1b:00.0\n"} {
		id, err := ParseBusID(s)
		require.NoError(t, err, s)
		require.Equal(t, BusID("0000:1b:00.0"), id)
		best, class := tr.Nearest(s, tr.NICs())
		require.Equal(t, one("mlx5_0", PIX), pick{names(best), class}, s)
	}
	id, err := ParseBusID("00010002:00:00.0")
	require.NoError(t, err)
	require.Equal(t, BusID("10002:00:00.0"), id)
	for _, s := range []string{"", "1b", "0000:1b:00", "0000:1b:20.0", "0000:1b:00.8", "0:0:0:0.0", "0000:1bb:00.0", "+1:00:00.0", "1ffffffff:1b:00.0"} {
		_, err := ParseBusID(s)
		require.ErrorContains(t, err, "want a PCI address", s)
	}
}

func TestNICs(t *testing.T) {
	require.Equal(t, []NIC{
		{Name: "mlx5_bond_0", BusID: "0000:19:00.0", NetDevs: []string{"eth0"}},
		{Name: "mlx5_2", BusID: "0000:32:00.0", NetDevs: []string{"eth2"}},
		{Name: "mlx4_0", BusID: "0000:41:00.0", NetDevs: []string{}},
		{Name: "mlx5_3", BusID: "0000:32:00.2", PhysFn: "0000:32:00.0", NetDevs: []string{}},
		{Name: "mlx5_4", BusID: "0000:32:00.3", PhysFn: "0000:32:00.0", NetDevs: []string{}},
		{Name: "rxe0", NUMANode: -1},
		{Name: "siw0", NUMANode: -1},
	}, tree(t, "bond-and-vfs").NICs())
	require.Equal(t, []GPU{{"0000:00:05.0", -1}}, tree(t, "vm-flat").GPUs(), "the VGA adapter is none")
}

func TestReadNothing(t *testing.T) {
	tr, err := Read(t.TempDir()) // not even a sysfs
	require.NoError(t, err)
	require.Empty(t, tr.GPUs())
	require.Empty(t, tr.NICs())
	best, class := tr.NearestHost(nil)
	require.Empty(t, best)
	require.Equal(t, Unknown, class)

	_, err = Read("") // this machine, whatever it is
	require.NoError(t, err)
}
