package ibverbs

import "time"

// Device is one RDMA device of a provider (struct ibv_device).
type Device interface {
	// Name is the device's name, such as "mlx5_0" or "soft0".
	Name() string
	// Provider names the implementation: "verbs" or "soft".
	Provider() string
	// Open opens the device (ibv_open_device(3)).
	Open() (Context, error)
}

// EventTimer is a Device that knows what its events cost.
type EventTimer interface {
	Device
	// EventTime is how long it takes to wake a goroutine that waits for an event,
	// beside what the device itself does. The first call measures it, in some
	// milliseconds; 0: it could not.
	EventTime() time.Duration
}

// Context is an open device (struct ibv_context).
type Context interface {
	// Device returns the device that was opened.
	Device() Device
	// QueryDevice returns the device's limits (ibv_query_device(3)).
	QueryDevice() (DeviceAttr, error)
	// AllocPD allocates a protection domain (ibv_alloc_pd(3)).
	AllocPD() (PD, error)
	// CreateCompChannel creates a completion event channel
	// (ibv_create_comp_channel(3)).
	CreateCompChannel() (CompChannel, error)
	// CreateCQ creates a completion queue of at least cqe entries whose
	// events go to ch; ch may be nil for a queue that is only polled
	// (ibv_create_cq(3)).
	CreateCQ(cqe int, ch CompChannel) (CQ, error)
	// Close closes the device. It fails with ErrBusy while objects made
	// from it exist.
	Close() error
}

// DeviceAttr are the limits of a device (struct ibv_device_attr and
// ibv_port_attr, in part). Sizes are in bytes.
type DeviceAttr struct {
	MaxQPWR   int    // work requests per send or receive queue
	MaxSGE    int    // scatter/gather entries per work request
	MaxCQE    int    // entries per completion queue
	MaxMRSize uint64 // bytes per memory region
	MaxMsgSz  uint32 // bytes per message
}

// Access are the access rights of a memory region (enum ibv_access_flags).
// Local read access is always implied. Remote rights do not exist here:
// no remote key ever leaves a process.
type Access uint32

// AccessLocalWrite lets receives write into the region.
const AccessLocalWrite Access = 1

// PD is a protection domain (struct ibv_pd).
type PD interface {
	// RegMR registers mem, which must be mapped memory outside the Go
	// heap and stay mapped until Dereg (ibv_reg_mr(3)). SGEs name it by
	// its host address.
	RegMR(mem []byte, access Access) (MR, error)
	// CreateQP creates a queue pair in state RESET (ibv_create_qp(3)).
	CreateQP(init QPInitAttr) (QP, error)
	// Dealloc frees the domain. It fails with ErrBusy while MRs or QPs of
	// it exist.
	Dealloc() error
}

// MR is a registered memory region (struct ibv_mr).
type MR interface {
	// Addr is the address by which SGEs name the first byte.
	Addr() uint64
	// Length is the region's size in bytes.
	Length() uint64
	// LKey is the key that SGEs carry.
	LKey() uint32
	// Dereg deregisters the region (ibv_dereg_mr(3)). Work requests that
	// name it must have completed; a provider that can tell refuses with
	// ErrBusy.
	Dereg() error
}

// DevicePD is a PD that registers memory which the host cannot follow. SGEs
// name it by iova, which is the device's own address of it. What cannot be
// registered this way is ErrNotSupported, with the reason.
type DevicePD interface {
	PD
	// RegMRIova registers mem, host memory as for RegMR, under the address
	// iova (ibv_reg_mr_iova(3)).
	RegMRIova(mem []byte, iova uint64, access Access) (MR, error)
	// RegDMABufMR registers length bytes at offset of the DMA buffer fd
	// (ibv_reg_dmabuf_mr(3)). offset and iova have the same position in a
	// page. fd may be closed when it has returned.
	RegDMABufMR(offset, length, iova uint64, fd int, access Access) (MR, error)
	// RegPeerMR registers device memory at addr through a peer memory module
	// of the kernel, such as nvidia_peermem (ibv_reg_mr(3)).
	RegPeerMR(addr, length uint64, access Access) (MR, error)
}
