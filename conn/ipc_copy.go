package conn

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
)

const (
	// hostPiece is what one worker copies between two looks at whether the
	// copy is still wanted: a fraction of a millisecond.
	hostPiece = 1 << 20
	// devicePiece is the same for a copy inside a GPU. Each piece is launched
	// and waited for by itself, which costs some 10 us.
	devicePiece = 256 << 20
	// hostShare is the least that is worth a worker of its own.
	hostShare = 4 << 20
	// maxWorkers is where more processors do not make the host's memory
	// faster.
	maxWorkers = 8
)

var errCopyEnded = errors.New("the landing has ended")

// hostWorkers returns how many goroutines copy size bytes of host memory.
func hostWorkers(size int64) int {
	return max(1, min(runtime.GOMAXPROCS(0), maxWorkers, int(size/hostShare)))
}

// copying is one copy in pieces, which ends early with its context, or with
// the landing.
type copying struct {
	ctx     context.Context
	end     <-chan struct{}
	size    int64
	piece   int64
	workers int

	next   atomic.Int64 // first byte that no worker has taken
	failed atomic.Pointer[error]
}

// run copies all pieces, in this goroutine and workers-1 others, and returns the
// first error. When it returns, no piece is being copied.
func (c *copying) run(move func(at, n int64) error) error {
	var wg sync.WaitGroup
	for range c.workers - 1 {
		wg.Go(func() { c.work(move) })
	}
	c.work(move)
	wg.Wait()
	if err := c.failed.Load(); err != nil {
		return *err
	}
	return nil
}

func (c *copying) work(move func(at, n int64) error) {
	for c.failed.Load() == nil {
		at := c.next.Add(c.piece) - c.piece
		if at >= c.size {
			return
		}
		err := c.wanted()
		if err == nil {
			err = move(at, min(c.piece, c.size-at))
		}
		if err != nil {
			c.failed.CompareAndSwap(nil, &err)
			return
		}
	}
}

// wanted says why the copy is not wanted any more.
func (c *copying) wanted() error {
	select {
	case <-c.end:
		return errCopyEnded
	default:
		return c.ctx.Err()
	}
}
