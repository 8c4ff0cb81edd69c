package conn

import (
	"testing"

	"github.com/gdrpc/gdrpc/ibverbs"
	"github.com/gdrpc/gdrpc/ibverbs/faultverbs"
	"github.com/gdrpc/gdrpc/ibverbs/soft/fabric"
	"github.com/stretchr/testify/require"
)

// TestConfigPaths has what is required against what is configured: what nothing
// here can reach is refused at once, by the field that was set.
func TestConfigPaths(t *testing.T) {
	const noNICs = " and no RDMA devices are configured: set Config.NICs, or lower Require"
	nic := func() []ibverbs.Device {
		return []ibverbs.Device{fabric.New().NewDevice(fabric.Config{Name: "mlx5_0", Ports: []fabric.Port{fabric.RoCE("10.0.0.1", "eth0")}})}
	}
	broken := func() []ibverbs.Device {
		return []ibverbs.Device{faultverbs.Wrap(nic()[0], &faultverbs.Script{Refuse: func(c faultverbs.Call) error {
			if c.Op == faultverbs.OpOpen {
				return ibverbs.ErrNoDevice
			}
			return nil
		}})}
	}
	for _, tt := range []struct {
		name string
		cfg  Config
		want string // "": it is accepted
	}{
		{"gdr", Config{Require: PathGDR}, "conn: Config.Require is gdr" + noNICs},
		{"gdr, NIC", Config{Require: PathGDR, NICs: nic()}, ""},
		{"gdr, broken NIC", Config{Require: PathGDR, NICs: broken()}, "conn: Config.Require is gdr and none of Config.NICs can be used: opening RDMA device mlx5_0"},
		{"staged, no shared memory", Config{Require: PathRDMAStaged, NoIPC: true}, "conn: Config.Require is rdma-staged" + noNICs},
		{"staged, at most", Config{Require: PathRDMAStaged, MaxPath: PathRDMAStaged}, "conn: Config.Require is rdma-staged" + noNICs},
		{"staged, by shared memory", Config{Require: PathRDMAStaged}, ""},
		{"staged, NIC", Config{Require: PathRDMAStaged, NoIPC: true, NICs: nic()}, ""},
		{"broken NIC", Config{NICs: broken()}, ""},
		{"ipc", Config{Require: PathIPC}, ""},
		{"ipc, NoIPC", Config{Require: PathIPC, NoIPC: true}, "conn: Config.Require is ipc and Config.NoIPC is set: leave one of them out"},
		{"ipc, MaxPath", Config{Require: PathIPC, MaxPath: PathSoft}, "conn: Config.MaxPath soft: want at least ipc, as Config.Require or the lanes have it"},
		{"gdr, MaxPath", Config{Require: PathGDR, MaxPath: PathIPC}, "conn: Config.MaxPath ipc: want at least gdr"},
		{"no such path", Config{Require: 99}, "conn: Config.Require 99: no such path"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.cfg.Logger = quiet().Logger
			d, err := NewDomain(&tt.cfg)
			if tt.want != "" {
				require.ErrorContains(t, err, tt.want)
				return
			}
			require.NoError(t, err)
			require.NoError(t, d.Close())
		})
	}
}
