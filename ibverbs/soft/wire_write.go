package soft

import (
	"fmt"

	"github.com/gdrpc/gdrpc/ibverbs"
)

// The pump writes. It exists while there is something to write: whoever finds
// work and no pump becomes it, and it hands over to a goroutine of its own
// before anything could block.

// kick queues p's sends for writing. The caller holds no lock.
func (w *Wire) kick(p *port) {
	w.mu.Lock()
	w.queue(p)
	start := w.startPump()
	w.mu.Unlock()
	if !start {
		return
	}
	if w.direct != nil && w.tryPump() {
		w.wg.Done()
		return
	}
	go w.pumpFn()
}

// queue enters p in the list of those with something to write. The caller
// holds mu.
func (w *Wire) queue(p *port) {
	if !p.queued {
		p.queued = true
		w.ready = append(w.ready, p)
	}
}

// startPump reports whether the caller must become the pump or start it. The
// caller holds mu.
func (w *Wire) startPump() bool {
	if w.pumping || w.err != nil {
		return false
	}
	w.pumping = true
	w.wg.Add(1)
	return true
}

// pump writes until there is nothing left.
func (w *Wire) pump() {
	defer w.wg.Done()
	for w.bat.total > 0 || w.load() {
		if q := w.finish(w.bat.writeTo(w.rw)); q != nil {
			q.fire() // the pump goes on behind it
		}
	}
}

// tryPump writes a small batch without blocking and reports whether nothing is
// left to do. If so there is no pump any more; else a batch is loaded.
func (w *Wire) tryPump() bool {
	if !w.load() {
		return true
	}
	if w.bat.total > directMax {
		return false
	}
	n, err := w.direct.write(w.bat.pieces)
	w.bat.written = n
	if err == nil && n < w.bat.total {
		return false
	}
	w.finish(err)
	return !w.load()
}

// load fills the batch with what is to be written next. It returns false, and
// the caller is not the pump any more, if there is nothing.
func (w *Wire) load() bool {
	for {
		w.bat.reset()
		w.mu.Lock()
		if w.err != nil || len(w.ready)+len(w.naks) == 0 {
			w.pumping = false
			w.mu.Unlock()
			return false
		}
		p, q := w.next()
		w.mu.Unlock()
		w.cur = nil
		if q != nil && q.take(&w.bat) {
			w.cur = p
		}
		if w.bat.total > 0 {
			return true
		}
	}
}

// next moves pending NAKs to the batch and takes the first ready port. The
// caller holds mu.
func (w *Wire) next() (*port, *QP) {
	n := min(len(w.naks), naksMax)
	for i := range n {
		w.bat.putHeader(&w.naks[i])
	}
	w.bat.shared = w.live > 1
	w.naks = append(w.naks[:0], w.naks[n:]...)
	if len(w.ready) == 0 {
		return nil, nil
	}
	p := w.ready[0]
	w.ready = append(w.ready[:0], w.ready[1:]...)
	p.queued = false
	return p, p.qp
}

// finish ends the write of the batch. It returns the queue pair that was
// written for, nil if there was none.
func (w *Wire) finish(err error) *QP {
	if err != nil {
		w.fail(fmt.Errorf("ibverbs/soft: wire: write: %w", err), ibverbs.WCRetryExcErr)
	}
	p := w.cur
	w.cur = nil
	if p == nil {
		w.bat.reset()
		return nil
	}
	w.mu.Lock()
	q := p.qp // there still: Destroy waits for us
	w.mu.Unlock()
	if q.sent(&w.bat, w.bat.whole()) {
		w.mu.Lock()
		w.queue(p)
		w.mu.Unlock()
	}
	w.bat.reset()
	return q
}
