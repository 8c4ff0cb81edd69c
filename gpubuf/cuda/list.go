package cuda

import (
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/gdrpc/gdrpc/gpubuf"
)

// UUID names a GPU or a MIG instance on every machine and in every process,
// unlike an index.
type UUID [16]byte

// String returns it as nvidia-smi -L does for a GPU: "GPU-" and five groups.
func (u UUID) String() string {
	h := hex.EncodeToString(u[:])
	return "GPU-" + h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}

// WritesOrdering says which readers see the writes of a NIC in order without a
// flush (CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING).
type WritesOrdering int

// The orderings.
const (
	OrderingNone  WritesOrdering = 0   // nobody
	OrderingOwner WritesOrdering = 100 // the GPU that owns the memory
	OrderingAll   WritesOrdering = 200 // every GPU
)

// String returns "none", "owner" or "all devices".
func (o WritesOrdering) String() string {
	switch {
	case o >= OrderingAll:
		return "all devices"
	case o >= OrderingOwner:
		return "owner"
	}
	return "none"
}

// Info describes a GPU that the driver shows this process.
type Info struct {
	Index   int    // ordinal in this process, which CUDA_VISIBLE_DEVICES shifts
	Name    string // "NVIDIA H200"
	UUID    UUID
	PCI     string // bus id: "0000:18:00.0"
	Memory  int64  // bytes
	Compute [2]int // compute capability, major and minor

	RDMA              bool           // GPUDirect RDMA
	DMABuf            bool           // memory can be exported as a DMA buffer
	WritesOrdering    WritesOrdering // of writes by GPUDirect RDMA
	HostFlush         bool           // cuFlushGPUDirectRDMAWrites works
	UnifiedAddressing bool           // one address space for all GPUs and the host
	IPC               bool           // memory can be shared between processes, as far as the driver says
}

// String returns a line for a person.
func (i Info) String() string {
	return fmt.Sprintf("%d: %s, %v, %s, %d MiB", i.Index, i.Name, i.UUID, i.PCI, i.Memory>>20)
}

// List returns the GPUs that the driver shows this process. It makes no
// context. Errors: gpubuf.ErrNoDevice if there is no driver or no GPU,
// gpubuf.ErrNotSupported without cgo, both with what was tried.
func List(cfg *Config) ([]Info, error) {
	var c Config
	if cfg != nil {
		c = *cfg
	}
	drv, n, err := load(c.Library)
	if err != nil {
		return nil, err
	}
	defer drv.unload()
	return list(drv, n)
}

func list(drv driver, n int) ([]Info, error) {
	infos := make([]Info, 0, n)
	for i := range n {
		info, err := describe(drv, i)
		if err != nil {
			return nil, err
		}
		infos = append(infos, info)
	}
	return infos, nil
}

// describe asks the driver about one GPU.
func describe(drv driver, index int) (Info, error) {
	info := Info{Index: index}
	device, r := drv.deviceGet(index)
	if r == 0 {
		info.Name, r = drv.deviceName(device)
	}
	if r == 0 {
		info.UUID, r = drv.deviceUUID(device)
	}
	if r == 0 {
		info.PCI, r = drv.devicePCI(device)
	}
	if r == 0 {
		info.Memory, r = drv.deviceMemory(device)
	}
	if r != 0 {
		return Info{}, newError(drv, deviceName(index), r, "")
	}
	// An attribute that the driver does not know yet is one it has not got.
	attribute := func(a int) int {
		v, r := drv.deviceAttribute(device, a)
		if r != 0 {
			return 0
		}
		return v
	}
	info.Compute = [2]int{attribute(attrComputeMajor), attribute(attrComputeMinor)}
	info.RDMA = attribute(attrRDMASupported) != 0
	info.DMABuf = attribute(attrDMABufSupported) != 0
	info.WritesOrdering = WritesOrdering(attribute(attrWritesOrdering))
	info.HostFlush = attribute(attrFlushOptions)&1 != 0
	info.UnifiedAddressing = attribute(attrUnifiedAddressing) != 0
	info.IPC = info.UnifiedAddressing && attribute(attrIPCSupported) != 0
	return info, nil
}

func deviceName(index int) string { return fmt.Sprintf("cuda:%d", index) }

// choose finds the GPU that a Config asks for. An error lists what there is.
func choose(infos []Info, c *Config) (Info, error) {
	if c.UUID == "" {
		if c.Index >= 0 && c.Index < len(infos) {
			return infos[c.Index], nil
		}
		return Info{}, noSuch(infos, fmt.Sprintf("Config.Index is %d", c.Index))
	}
	want := strings.ToLower(c.UUID)
	for _, kind := range []string{"gpu-", "mig-"} {
		want = strings.TrimPrefix(want, kind)
	}
	var found []Info
	for _, i := range infos {
		if strings.HasPrefix(strings.TrimPrefix(i.UUID.String(), "GPU-"), want) {
			found = append(found, i)
		}
	}
	switch {
	case want == "" || len(found) == 0:
		return Info{}, noSuch(infos, fmt.Sprintf("Config.UUID is %q", c.UUID))
	case len(found) > 1:
		return Info{}, noSuch(infos, fmt.Sprintf("Config.UUID %q fits %d of them", c.UUID, len(found)))
	}
	return found[0], nil
}

func noSuch(infos []Info, asked string) error {
	lines := make([]string, len(infos))
	for i, info := range infos {
		lines[i] = info.String()
	}
	return fmt.Errorf("cuda: new: %w: %s, and there are: %s", gpubuf.ErrNoDevice, asked, strings.Join(lines, "; "))
}
