package soft

import (
	"sync/atomic"

	"github.com/gdrpc/gdrpc/ibverbs"
)

// MR is a registered memory region.
type MR struct {
	node
	pd     *PD
	mem    []byte
	addr   uint64
	key    uint32
	access ibverbs.Access

	users atomic.Int32 // transfers that touch mem now; raised under pd.mu
}

var _ ibverbs.MR = (*MR)(nil)

// Addr is the address by which SGEs name the first byte.
func (m *MR) Addr() uint64 { return m.addr }

// Length is the region's size in bytes.
func (m *MR) Length() uint64 { return uint64(len(m.mem)) }

// LKey is the key that SGEs carry.
func (m *MR) LKey() uint32 { return m.key }

// Dereg deregisters the region. It fails with ErrBusy while bytes of it are
// being moved; queued requests that name it will complete with WCLocProtErr.
func (m *MR) Dereg() error {
	m.pd.mu.Lock()
	defer m.pd.mu.Unlock()
	if m.users.Load() > 0 {
		return m.refuse("dereg_mr", ibverbs.ErrBusy, "wait for the completion of the requests that name it")
	}
	delete(m.pd.mrs, m.key)
	return m.leave("dereg_mr")
}

// release ends one use that resolve counted.
func (m *MR) release() { m.users.Add(-1) }

// releaseAll releases ms and returns it emptied for reuse.
func releaseAll(ms []*MR) []*MR {
	for i, m := range ms {
		m.release()
		ms[i] = nil
	}
	return ms[:0]
}
