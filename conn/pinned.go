package conn

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/gdrpc/gdrpc/gpubuf"
)

// pinnedRegion is how much page-locked memory is taken at a time. Locking pages
// takes a millisecond for some MiB.
const pinnedRegion = 32 << 20

// pinnedPools are a domain's pools of page-locked memory: one for each device
// that has such memory. A pool lives for as long as an open Conn keeps it or a
// block of it is out, so that the device can be closed once its Conns are.
type pinnedPools struct {
	mu    sync.Mutex                    // held while a pool is made or closed
	pools map[gpubuf.Device]*pinnedPool // by PinnedDevice.Pinned; guarded by mu
}

type pinnedPool struct {
	*gpubuf.Pool
	users int // Conns that keep it and blocks that are out; guarded by pinnedPools.mu
}

// enter notes one more user of the pool of dev, which it makes if need be.
func (p *pinnedPools) enter(dev gpubuf.PinnedDevice) (*pinnedPool, error) {
	memory := dev.Pinned()
	p.mu.Lock()
	defer p.mu.Unlock()
	pool := p.pools[memory]
	if pool == nil {
		made, err := gpubuf.NewPool(gpubuf.Config{Device: memory, Limit: stagingLimit, RegionSize: pinnedRegion, ReplyReserve: -1})
		if err != nil {
			return nil, err
		}
		if p.pools == nil {
			p.pools = make(map[gpubuf.Device]*pinnedPool)
		}
		pool = &pinnedPool{Pool: made}
		p.pools[memory] = pool
	}
	pool.users++
	return pool, nil
}

// leave undoes enter. The last user frees the memory.
func (p *pinnedPools) leave(memory gpubuf.Device) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	pool := p.pools[memory]
	if pool.users--; pool.users > 0 {
		return nil
	}
	delete(p.pools, memory)
	if err := pool.Close(); err != nil {
		return fmt.Errorf("conn: freeing pinned staging blocks: %w", err)
	}
	return nil
}

// block takes a staging block of a device that copies in the background.
func (p *pinnedPools) block(dev gpubuf.PinnedDevice, size int) (*gpubuf.Slice, error) {
	pool, err := p.enter(dev)
	if err != nil {
		return nil, err
	}
	all, err := pool.AllocAll(context.Background(), gpubuf.AllocRequest{Sizes: []int64{int64(size)}, NoWait: true})
	if err != nil {
		return nil, errors.Join(err, p.leave(dev.Pinned()))
	}
	return all[0], nil
}

// pinnedKeeper holds, for one Conn, the pools of the devices that it has staged
// for.
type pinnedKeeper struct {
	d *Domain

	mu     sync.Mutex
	kept   map[gpubuf.Device]struct{} // guarded by mu
	closed bool                       // guarded by mu
}

// keep sees to it that staging blocks for dev are at hand, before a lock is held
// that their making would block. Devices without pinned memory need nothing.
func (k *pinnedKeeper) keep(dev gpubuf.Device) error {
	pinned, ok := dev.(gpubuf.PinnedDevice)
	if !ok {
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		return nil // what lingers makes do with what its blocks keep
	}
	if _, ok := k.kept[pinned.Pinned()]; ok {
		return nil
	}
	if _, err := k.d.pinned.enter(pinned); err != nil {
		return err
	}
	if k.kept == nil {
		k.kept = make(map[gpubuf.Device]struct{})
	}
	k.kept[pinned.Pinned()] = struct{}{}
	block, err := k.d.pinned.block(pinned, k.d.cfg.StagingBlock)
	if err != nil {
		return err
	}
	return k.d.putBlock(block)
}

// close lets the pools go. Blocks that are out keep theirs.
func (k *pinnedKeeper) close() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.closed = true
	for memory := range k.kept {
		if err := k.d.pinned.leave(memory); err != nil {
			k.d.cfg.Logger.Error("gdrpc: closing connection", "err", err)
		}
	}
	k.kept = nil
}
