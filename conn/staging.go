package conn

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/gdrpc/gdrpc/gpubuf"
)

// stagingLimit bounds a domain's staging memory of one kind: ordinary, or pinned
// for one device.
const stagingLimit = 16 << 30

// errNoBlock says why there is no staging block now.
var errNoBlock = errors.New("no staging block")

// stager hands out the staging blocks of one lane in one direction: host memory
// through which attachments go to and from devices that the NIC, or TCP, cannot
// reach. The quota bounds what one lane can hold of the domain, so that no lane
// waits for another's blocks.
type stager struct {
	d     *Domain
	nic   *nic
	size  int // bytes of a block
	quota int

	mu   sync.Mutex
	held int // blocks handed out; guarded by mu
}

// get returns a block for copies to or from dev, or fails with errNoBlock if the
// quota is used up, the domain has no memory or the NIC cannot register it. It does not wait: the holder of a
// block calls put and then tries again.
func (s *stager) get(dev gpubuf.Device) (*gpubuf.Slice, error) {
	if !s.hold() {
		return nil, fmt.Errorf("%w: all %d of the lane are in use", errNoBlock, s.quota)
	}
	b, err := s.d.stagingBlock(dev, s.size)
	if err == nil {
		if _, err = s.nic.regions.lookup(b.Region()); err != nil {
			err = errors.Join(err, s.d.putBlock(b))
		}
	}
	if err != nil {
		s.unhold()
		return nil, fmt.Errorf("%w: %w", errNoBlock, err)
	}
	return b, nil
}

// take returns from one to n blocks.
func (s *stager) take(dev gpubuf.Device, n int) ([]*gpubuf.Slice, error) {
	var blocks []*gpubuf.Slice
	for len(blocks) < n {
		b, err := s.get(dev)
		if err != nil && len(blocks) == 0 {
			return nil, err
		}
		if err != nil {
			break
		}
		blocks = append(blocks, b)
	}
	return blocks, nil
}

// put takes a block back. A nil block is none.
func (s *stager) put(b *gpubuf.Slice) {
	if b == nil {
		return
	}
	if err := s.d.putBlock(b); err != nil {
		s.d.cfg.Logger.Error("gdrpc: staging", "err", err)
	}
	s.unhold()
}

func (s *stager) hold() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held >= s.quota {
		return false
	}
	s.held++
	return true
}

func (s *stager) unhold() {
	s.mu.Lock()
	s.held--
	s.mu.Unlock()
}

// free returns how many blocks get could return, and whether some are out.
func (s *stager) free() (n int, out bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.quota - s.held, s.held > 0
}

// laneStager is that of a bulk lane.
func (d *Domain) laneStager(n *nic) stager {
	return stager{d: d, nic: n, size: d.cfg.StagingBlock, quota: d.cfg.StagingBlocks}
}

// stagingBlock takes a block for copies to or from dev: pinned memory if it has
// some.
func (d *Domain) stagingBlock(dev gpubuf.Device, size int) (*gpubuf.Slice, error) {
	if pinned, ok := dev.(gpubuf.PinnedDevice); ok {
		return d.pinned.block(pinned, size)
	}
	return d.hostBlock(size)
}

// putBlock undoes stagingBlock.
func (d *Domain) putBlock(b *gpubuf.Slice) error {
	memory := b.Device()
	b.Free()
	if memory == d.host {
		return nil
	}
	return d.pinned.leave(memory)
}

// hostBlock takes host memory of the domain without waiting.
func (d *Domain) hostBlock(size int) (*gpubuf.Slice, error) {
	all, err := d.blocks.AllocAll(context.Background(), gpubuf.AllocRequest{Sizes: []int64{int64(size)}, NoWait: true})
	if err != nil {
		return nil, err
	}
	return all[0], nil
}
