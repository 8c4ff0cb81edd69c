// Package fabric is a network of software NICs inside one process: an
// ibverbs.FabricContext for tests that need no hardware. What it moves bytes
// with are the queue pairs of ibverbs/soft.
//
// # Usage
//
// A Fabric is the network; each of its devices has ports with a state, an MTU, a
// LID and a table of GIDs. Queue pairs are connected as on hardware: Modify to
// RTR names the peer's port and queue pair number, and the fabric finds it.
//
//	f := fabric.New()
//	a := f.NewDevice(fabric.Config{Name: "mlx5_0", Ports: []fabric.Port{fabric.RoCE("10.0.0.1", "eth0")}})
//	b := f.NewDevice(fabric.Config{Name: "mlx5_0", Ports: []fabric.Port{fabric.RoCE("10.0.0.2", "eth0")}})
//
// Tests have things happen by SetPort, MarkPort, Kill and Raise. Faults of single calls
// and completions are those of package ibverbs/faultverbs.
//
// # Semantics
//
// Modify wants exactly the attributes that ibv_modify_qp(3) lists for IBV_QPT_RC
// and checks them: the port is ACTIVE, the source GID exists, the path MTU is
// within the port's, the peer's port exists. A destination that no port has is
// refused with ErrNoRoute. A queue pair that has no peer, or whose peer is gone,
// notices when it sends (IBV_WC_RETRY_EXC_ERR), not before: a dead peer is
// silent, as on hardware.
//
// A PD is an ibverbs.DevicePD. RegMRIova works; memory by DMA buffer or peer
// module is refused unless the device's Config has a function for it.
//
// # Limitations
//
// The fabric is stricter than hardware in one place: two queue pairs whose path
// MTUs differ do not connect. Retries, rates and congestion do not exist.
package fabric
