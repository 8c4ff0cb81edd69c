//go:build linux && cgo

package verbs

// #include "shim.h"
import "C"

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"unsafe"

	"github.com/gdrpc/gdrpc/ibverbs"
	"github.com/gdrpc/gdrpc/internal/leak"
	"golang.org/x/sys/unix"
)

// MR is a registered memory region.
type MR struct {
	node
	pd     *PD
	mr     *C.struct_gv_mr // guarded by life
	addr   uint64
	length uint64
	lkey   uint32
}

var _ ibverbs.MR = (*MR)(nil)

// Addr is the address by which SGEs name the first byte.
func (m *MR) Addr() uint64 { return m.addr }

// Length is the region's size in bytes.
func (m *MR) Length() uint64 { return m.length }

// LKey is the key that SGEs carry.
func (m *MR) LKey() uint32 { return m.lkey }

// Dereg deregisters the region. The device may still be using it if requests
// that name it have not completed; that cannot be told here.
//
//	int ibv_dereg_mr(struct ibv_mr *mr)
func (m *MR) Dereg() error {
	return m.end("dereg_mr", func() error {
		if errno := C.gv_dereg_mr(m.pd.ctx.lib.fn, m.mr); errno != 0 && !gone(errno) {
			return failed("dereg_mr", m.name, errno, "")
		}
		m.mr = nil
		return nil
	})
}

// RegMR registers mem, which is pinned.
//
//	struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
func (p *PD) RegMR(mem []byte, access ibverbs.Access) (ibverbs.MR, error) {
	addr := addrOf(mem)
	return p.register("reg_mr", uint64(addr), uint64(len(mem)), access, memlockRemedy, func(out **C.struct_gv_mr) C.int {
		return C.gv_reg_mr(p.ctx.lib.fn, p.pd, addr, C.size_t(len(mem)), C.int(access), out)
	})
}

// RegMRIova registers mem, which is pinned, under the address iova.
//
//	struct ibv_mr *ibv_reg_mr_iova(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, int access)
func (p *PD) RegMRIova(mem []byte, iova uint64, access ibverbs.Access) (ibverbs.MR, error) {
	addr := addrOf(mem)
	return p.register("reg_mr_iova", iova, uint64(len(mem)), access, memlockRemedy, func(out **C.struct_gv_mr) C.int {
		return C.gv_reg_mr_iova(p.ctx.lib.fn, p.pd, addr, C.size_t(len(mem)), C.uint64_t(iova), C.int(access), out)
	})
}

// RegDMABufMR registers a part of a DMA buffer. A kernel or driver that cannot is
// ErrNotSupported; with fd -1 one that can answers EBADF.
//
//	struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova, int fd, int access)
func (p *PD) RegDMABufMR(offset, length, iova uint64, fd int, access ibverbs.Access) (ibverbs.MR, error) {
	if page := uint64(os.Getpagesize()); (offset^iova)%page != 0 {
		return nil, p.invalid("reg_dmabuf_mr", "offset 0x%x and iova 0x%x differ in their position in a page", offset, iova)
	}
	return p.register("reg_dmabuf_mr", iova, length, access, dmabufRemedy, func(out **C.struct_gv_mr) C.int {
		return C.gv_reg_dmabuf_mr(p.ctx.lib.fn, p.pd, C.uint64_t(offset), C.size_t(length), C.uint64_t(iova), C.int(fd), C.int(access), out)
	})
}

// RegPeerMR registers device memory through a peer memory module. EFAULT, which
// is what libibverbs says if no module knows the address, is ErrNotSupported.
func (p *PD) RegPeerMR(addr, length uint64, access ibverbs.Access) (ibverbs.MR, error) {
	m, err := p.register("reg_mr", addr, length, access, memlockRemedy, func(out **C.struct_gv_mr) C.int {
		return C.gv_reg_mr(p.ctx.lib.fn, p.pd, C.uintptr_t(addr), C.size_t(length), C.int(access), out)
	})
	if errors.Is(err, unix.EFAULT) {
		return nil, p.refuse("reg_mr", fmt.Errorf("%w: device memory at 0x%x: bad address (EFAULT)", ibverbs.ErrNotSupported, addr),
			"nvidia_peermem is not loaded (modprobe nvidia_peermem), or cannot pin memory of this kind (managed, asynchronous pool)")
	}
	return m, err
}

// register makes an MR by calling reg, which gets the region from libibverbs.
func (p *PD) register(op string, addr, length uint64, access ibverbs.Access, remedy func(C.int) string,
	reg func(**C.struct_gv_mr) C.int) (ibverbs.MR, error) {
	if most := p.ctx.attr.MaxMRSize; length == 0 || length > most {
		return nil, p.invalid(op, "%d bytes, want 1 to %d", length, most)
	}
	if access&^ibverbs.AccessLocalWrite != 0 {
		return nil, p.invalid(op, "access 0x%x", uint32(access))
	}
	m := &MR{pd: p, addr: addr, length: length}
	m.tree = p.tree
	if err := m.join(op, leak.Track("verbs.MR"), &p.node); err != nil {
		return nil, err
	}
	var mr *C.struct_gv_mr // cgo wants it to lie apart from Go pointers
	if errno := reg(&mr); errno != 0 {
		m.leave()
		return nil, failed(op, fmt.Sprintf("%s (%d bytes)", p.name, length), errno, remedy(errno))
	}
	m.mr, m.lkey = mr, uint32(mr.lkey)
	m.name = fmt.Sprintf("%s mr 0x%x", p.ctx.name, m.lkey)
	return m, nil
}

// dmabufRemedy is what to do about a DMA buffer that was refused.
func dmabufRemedy(errno C.int) string {
	switch syscall.Errno(errno) {
	case unix.EOPNOTSUPP, unix.EPROTONOSUPPORT:
		return "it takes a kernel and a driver with DMA buffer registration (Linux 5.12, mlx5 for example)"
	case unix.ENOSYS:
		return "it takes rdma-core 34 or newer"
	}
	return memlockRemedy(errno)
}

// addrOf returns the address of mem's first byte. Registered memory lies outside
// the Go heap, so that the address stays what it is.
func addrOf(mem []byte) C.uintptr_t {
	return C.uintptr_t(uintptr(unsafe.Pointer(unsafe.SliceData(mem))))
}
