package topology

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestHint(t *testing.T) {
	nic := func(tr *Tree, name string) NIC { return only(tr.NICs(), name)[0] }

	tr := tree(t, "hgx-8x8")
	require.Contains(t, tr.Hint("00000000:1B:00.0", nic(tr, "mlx5_0")), "ACS separates them (IOMMU groups 1 and 0)")
	require.Empty(t, tr.Hint("0000:1b:00.0", nic(tr, "mlx5_3")), "no switch in common that ACS could spoil")
	require.Empty(t, tr.Hint("0000:1b:00.0", nic(tr, "mlx5_1")), "no IOMMU group")

	tr = tree(t, "cascade")
	require.Equal(t, "the IOMMU translates their addresses: boot with iommu=pt", tr.Hint("0000:25:00.0", nic(tr, "mlx5_0")))
	both := tr.Hint("0000:29:00.0", nic(tr, "mlx5_0"))
	require.Contains(t, both, "ACS separates")
	require.Contains(t, both, "; the IOMMU translates")

	require.Empty(t, tr.Hint("0000:29:00.0", NIC{Name: "rxe0"}))
}
