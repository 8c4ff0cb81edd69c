package conn

import (
	"context"
	"sync"

	"github.com/gdrpc/gdrpc/gpubuf"
)

// stager hands out the staging blocks of one Conn in one direction: host memory
// through which attachments go to and from devices that the NIC, or TCP, cannot
// reach. The quota bounds what one Conn can hold of the domain.
type stager struct {
	d     *Domain
	quota int

	mu   sync.Mutex
	held int // blocks handed out; guarded by mu
}

// get returns a block, or nil if the quota is used up or the domain has no
// memory for one. It does not wait: the holder of a block calls put and then
// tries again.
func (s *stager) get() *gpubuf.Slice {
	s.mu.Lock()
	if s.held >= s.quota {
		s.mu.Unlock()
		return nil
	}
	s.held++
	s.mu.Unlock()
	b, err := s.d.hostBlock(s.d.cfg.StagingBlock)
	if err != nil {
		s.unhold()
		return nil
	}
	return b
}

// take returns up to n blocks.
func (s *stager) take(n int) []*gpubuf.Slice {
	var blocks []*gpubuf.Slice
	for len(blocks) < n {
		b := s.get()
		if b == nil {
			break
		}
		blocks = append(blocks, b)
	}
	return blocks
}

// put takes a block back. A nil block is none.
func (s *stager) put(b *gpubuf.Slice) {
	if b == nil {
		return
	}
	b.Free()
	s.unhold()
}

func (s *stager) unhold() {
	s.mu.Lock()
	s.held--
	s.mu.Unlock()
}

// free returns how many blocks get could return.
func (s *stager) free() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.quota - s.held
}

// hostBlock takes host memory of the domain without waiting.
func (d *Domain) hostBlock(size int) (*gpubuf.Slice, error) {
	all, err := d.blocks.AllocAll(context.Background(), gpubuf.AllocRequest{Sizes: []int64{int64(size)}, NoWait: true})
	if err != nil {
		return nil, err
	}
	return all[0], nil
}
