package conn

import (
	"sync"

	"github.com/gdrpc/gdrpc/gpubuf"
)

// blockCopy is a copy between a staging block and a slice of device memory. The
// holder keeps both alive, and lets nobody else touch the block, until wait has
// returned.
type blockCopy struct {
	slice *gpubuf.Slice
	off   int64
	block []byte
	out   bool // from the slice to the block

	under gpubuf.Copy // nil if the device copies in the foreground: wait copies
}

// background says whether copies to and from the slice are made in the
// background.
func background(s *gpubuf.Slice) bool {
	_, ok := s.Device().(gpubuf.PinnedDevice)
	return ok
}

// start begins the copy. It does not block. If it fails, there is no copy.
func (c *blockCopy) start() (err error) {
	dev, ok := c.slice.Device().(gpubuf.PinnedDevice)
	if !ok {
		return nil
	}
	at := c.slice.Ptr() + gpubuf.DevicePtr(c.off)
	if c.out {
		c.under, err = dev.StartCopyOut(c.block, at)
	} else {
		c.under, err = dev.StartCopyIn(at, c.block)
	}
	return err
}

// wait returns when the copy, which was started, has ended.
func (c *blockCopy) wait() error {
	switch {
	case c.under != nil:
		return c.under.Wait()
	case c.out:
		return c.slice.CopyOut(c.block, c.off)
	}
	return c.slice.CopyIn(c.off, c.block)
}

// waited is something that ends with a copy.
type waited interface{ wait() error }

// reaper waits for the copies of one lane in one direction, in the order in which
// they began, on a goroutine of its own that ends when there are none.
type reaper[T waited] struct {
	mu    *sync.Mutex             // the owner's
	ended func(item T, err error) // called with mu held
	after func()                  // called without it, behind ended; nil for nothing

	queue   []T            // not ended, oldest first; guarded by mu
	running bool           // guarded by mu
	done    sync.WaitGroup // the goroutine
}

// add takes a copy that has begun. mu is held.
func (r *reaper[T]) add(item T) {
	r.queue = append(r.queue, item)
	if !r.running {
		r.running = true
		r.done.Go(r.run)
	}
}

func (r *reaper[T]) run() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for len(r.queue) > 0 {
		oldest := r.queue[0]
		r.mu.Unlock()
		err := oldest.wait()
		r.mu.Lock()
		r.queue = append(r.queue[:0], r.queue[1:]...)
		r.ended(oldest, err)
		r.leave()
	}
	r.running = false
}

// leave gives mu up for what follows an ended copy.
func (r *reaper[T]) leave() {
	if r.after == nil {
		return
	}
	r.mu.Unlock()
	defer r.mu.Lock()
	r.after()
}

// close waits until all copies have ended. None may be added any more.
func (r *reaper[T]) close() { r.done.Wait() }
