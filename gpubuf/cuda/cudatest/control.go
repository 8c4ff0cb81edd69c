package cudatest

// Control is struct control of testdata/fakecuda/fake.h, which explains it. The
// library and the test share one.
type Control struct {
	Devices, Lag, Gate, Misalign, Managed, OwnHandles, Peers, Stub, HostMemory uint64
	HostAllocs, HostBytes, Streams, Events, Modules, Opened                    uint64
	Pushed, Waiting, MostWaiting, Straight, Violations                         uint64
	Violation                                                                  [256]byte
	Dev                                                                        [8]ControlDevice
	Fn                                                                         [64]ControlFunction
}

// ControlDevice is one GPU.
type ControlDevice struct {
	UUID, Memory                uint64
	DMABuf, Ordering, HostFlush uint64
	NoPeer, Lost                uint64
	Contexts, Allocs, Bytes     uint64
	Flushes, FlushScope         uint64
}

// ControlFunction is one of the driver's functions, by its symbol.
type ControlFunction struct {
	Name                    [48]byte
	Calls, FailAt, FailCode uint64
}
