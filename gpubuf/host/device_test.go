package host_test

import (
	"testing"

	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/gpubuf/gpubuftest"
	"github.com/gdrpc/gdrpc/gpubuf/host"
	"github.com/stretchr/testify/require"
)

func TestConformance(t *testing.T) {
	newDevice := func(*testing.T) gpubuf.Device { return host.New() }
	gpubuftest.RunDevice(t, newDevice)
	gpubuftest.RunPool(t, newDevice)
}

func TestSharedConformance(t *testing.T) {
	newDevice := func(*testing.T) gpubuf.Device { return host.NewShared() }
	gpubuftest.RunDevice(t, newDevice)
	gpubuftest.RunPool(t, newDevice)
}

func TestFreeTwice(t *testing.T) {
	d := host.New()
	m, err := d.Alloc(2 << 20)
	require.NoError(t, err)
	require.NoError(t, m.Free())
	require.ErrorContains(t, m.Free(), "freed already")
	require.NoError(t, d.Close())
}
