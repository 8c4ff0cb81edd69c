package topology

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestNearestHost(t *testing.T) {
	tests := []struct {
		name, machine string
		nics          []string // nil: all
		want          pick
	}{
		{"bound to one node", "2-nics-8-gpus", nil, one("mlx5_1", NODE)},
		{"bound to a node without a NIC", "one-sided", nil, pick{[]string{"mlx5_0", "mlx5_1"}, SYS}},
		{"on both nodes", "1-nic-1-gpu", nil, one("mlx5_0", SYS)},
		{"one node", "bond-and-vfs", nil, pick{[]string{"mlx5_bond_0", "mlx5_2", "mlx4_0"}, NODE}},
		{"virtual functions", "bond-and-vfs", []string{"mlx5_3", "mlx5_4"}, one("mlx5_3", NODE)},
		{"NUMA node not known", "vm-flat", nil, one("mlx5_0", NODE)},
		{"no place in the tree", "bond-and-vfs", []string{"siw0", "rxe0"}, pick{[]string{"rxe0", "siw0"}, Unknown}},
		{"none", "nothing", nil, pick{[]string{}, Unknown}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tr := tree(t, tt.machine)
			nics := tr.NICs()
			if tt.nics != nil {
				nics = only(nics, tt.nics...)
			}
			best, class := tr.NearestHost(nics)
			require.Equal(t, tt.want, pick{names(best), class})
		})
	}
}

func TestParseList(t *testing.T) {
	for in, want := range map[string][]int{
		"": nil, "0": {0}, "0-3": {0, 1, 2, 3}, "0-1,8,10-11": {0, 1, 8, 10, 11},
	} {
		got, err := parseList(in)
		require.NoError(t, err, in)
		require.Equal(t, want, got, in)
	}
	for _, in := range []string{"a", "1-", "-1", "3-1", "0-999999999", "0-60000,0-60000", "1;2"} {
		_, err := parseList(in)
		require.Error(t, err, in)
	}
}
