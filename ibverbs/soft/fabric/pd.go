package fabric

import (
	"fmt"

	"github.com/gdrpc/gdrpc/ibverbs"
	"github.com/gdrpc/gdrpc/ibverbs/soft"
)

// PD is a protection domain.
type PD struct {
	ibverbs.PD
	dev *Device
}

var _ ibverbs.DevicePD = (*PD)(nil)

// RegMR registers mem.
func (p *PD) RegMR(mem []byte, access ibverbs.Access) (ibverbs.MR, error) {
	if err := p.check("reg_mr", uint64(len(mem))); err != nil {
		return nil, err
	}
	return p.PD.RegMR(mem, access)
}

// RegMRIova registers mem under the address iova.
func (p *PD) RegMRIova(mem []byte, iova uint64, access ibverbs.Access) (ibverbs.MR, error) {
	if err := p.check("reg_mr_iova", uint64(len(mem))); err != nil {
		return nil, err
	}
	return p.PD.(*soft.PD).RegMRIova(mem, iova, access)
}

// RegDMABufMR registers what Config.RegDMABuf finds behind fd.
func (p *PD) RegDMABufMR(offset, length, iova uint64, fd int, access ibverbs.Access) (ibverbs.MR, error) {
	const op = "reg_dmabuf_mr"
	if err := p.check(op, length); err != nil {
		return nil, err
	}
	if p.dev.cfg.RegDMABuf == nil {
		return nil, p.dev.refuse(op, fmt.Errorf("%w: the device has no DMA buffers", ibverbs.ErrNotSupported))
	}
	if (offset^iova)&4095 != 0 {
		return nil, p.dev.refuse(op, fmt.Errorf("%w: offset %#x and iova %#x lie differently in their pages", ibverbs.ErrInvalid, offset, iova))
	}
	mem, err := p.dev.cfg.RegDMABuf(fd, offset, length)
	if err != nil {
		return nil, p.dev.refuse(op, err)
	}
	return p.PD.(*soft.PD).RegMRIova(mem, iova, access)
}

// RegPeerMR registers what Config.RegPeer finds at addr.
func (p *PD) RegPeerMR(addr, length uint64, access ibverbs.Access) (ibverbs.MR, error) {
	const op = "reg_mr"
	if err := p.check(op, length); err != nil {
		return nil, err
	}
	if p.dev.cfg.RegPeer == nil {
		return nil, p.dev.refuse(op, fmt.Errorf("%w: no peer memory module", ibverbs.ErrNotSupported))
	}
	mem, err := p.dev.cfg.RegPeer(addr, length)
	if err != nil {
		return nil, p.dev.refuse(op, err)
	}
	return p.PD.(*soft.PD).RegMRIova(mem, addr, access)
}

// check holds a registration to the device's largest.
func (p *PD) check(op string, length uint64) error {
	if most := p.dev.cfg.Limits.MaxMRSize; most > 0 && length > most {
		return p.dev.refuse(op, fmt.Errorf("%w: %d bytes, want at most %d", ibverbs.ErrInvalid, length, most))
	}
	return nil
}

// CreateQP creates a queue pair in state RESET.
func (p *PD) CreateQP(init ibverbs.QPInitAttr) (ibverbs.QP, error) {
	inner, err := p.PD.CreateQP(init)
	if err != nil {
		return nil, err
	}
	q := &QP{QP: inner, dev: p.dev}
	f := p.dev.fabric
	f.mu.Lock()
	dead := p.dev.dead
	if !dead {
		f.ends[q.name()] = q
	}
	f.mu.Unlock()
	if dead {
		_ = inner.Destroy() // cannot fail: nothing uses it yet
		return nil, p.dev.refuse("create_qp", fmt.Errorf("%w: the device has failed", ibverbs.ErrInvalid))
	}
	return q, nil
}
