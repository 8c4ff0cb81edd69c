package soft

import (
	"fmt"
	"sync"

	"github.com/gdrpc/gdrpc/ibverbs"
	"github.com/gdrpc/gdrpc/internal/leak"
)

// PD is a protection domain.
type PD struct {
	node
	ctx *Context

	mu  sync.RWMutex   // a leaf, taken under QP.mu
	mrs map[uint32]*MR // by key; guarded by mu
}

var _ ibverbs.PD = (*PD)(nil)

// RegMR registers mem under its own address. It costs nothing per page: the memory is not pinned.
func (p *PD) RegMR(mem []byte, access ibverbs.Access) (ibverbs.MR, error) {
	return p.RegMRIova(mem, addrOf(mem), access)
}

// RegMRIova registers mem under the address iova, by which SGEs then name its
// first byte (ibv_reg_mr_iova(3)).
func (p *PD) RegMRIova(mem []byte, iova uint64, access ibverbs.Access) (ibverbs.MR, error) {
	if len(mem) == 0 || len(mem) > maxMRSize {
		return nil, p.invalid("reg_mr", "%d bytes", len(mem))
	}
	if access&^ibverbs.AccessLocalWrite != 0 {
		return nil, p.invalid("reg_mr", "access 0x%x", uint32(access))
	}
	key := p.ctx.dev.nextKey()
	m := &MR{pd: p, mem: mem, addr: iova, key: key, access: access}
	m.node = node{tree: p.tree, name: fmt.Sprintf("%s mr 0x%x", p.ctx.dev.Name(), key)}
	if err := m.join("reg_mr", leak.Track("soft.MR"), &p.node); err != nil {
		return nil, err
	}
	p.mu.Lock()
	p.mrs[key] = m
	p.mu.Unlock()
	return m, nil
}

// CreateQP creates a queue pair in state RESET. It reaches RTR only once it is
// attached to a Wire.
func (p *PD) CreateQP(init ibverbs.QPInitAttr) (ibverbs.QP, error) {
	most := p.ctx.dev.cfg.MaxQPWR
	if min(init.MaxSendWR, init.MaxRecvWR) < 0 || max(init.MaxSendWR, init.MaxRecvWR) > most {
		return nil, p.invalid("create_qp", "%d send and %d receive requests, want 0 to %d", init.MaxSendWR, init.MaxRecvWR, most)
	}
	scq, ok1 := init.SendCQ.(*CQ)
	rcq, ok2 := init.RecvCQ.(*CQ)
	if !ok1 || !ok2 || scq.tree != p.tree || rcq.tree != p.tree {
		return nil, p.invalid("create_qp", "it needs two completion queues of this context")
	}
	q := newQP(p, scq, rcq, init)
	if err := q.join("create_qp", leak.Track("soft.QP"), &p.node, &scq.node, &rcq.node); err != nil {
		return nil, err
	}
	if !scq.add(q) || !rcq.add(q) {
		_ = q.Destroy() // cannot fail: nothing uses it yet
		return nil, p.invalid("create_qp", "a completion queue has overrun")
	}
	return q, nil
}

// Dealloc frees the domain. It fails with ErrBusy while MRs or QPs of it exist.
func (p *PD) Dealloc() error { return p.leave("dealloc_pd") }

// resolve returns the memory that s names and its region, whose use it counts;
// the caller gives that back with MR.release.
func (p *PD) resolve(s ibverbs.SGE, need ibverbs.Access) ([]byte, *MR, bool) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	m := p.mrs[s.LKey]
	if m == nil || m.access&need != need {
		return nil, nil, false
	}
	size, n := uint64(len(m.mem)), uint64(s.Length)
	off := s.Addr - m.addr
	if s.Addr < m.addr || n > size || off > size-n {
		return nil, nil, false
	}
	m.users.Add(1)
	return m.mem[off : off+n : off+n], m, true
}
