//go:build linux && cgo

package verbs

// #include "shim.h"
import "C"

import (
	"slices"
	"sync"
	"syscall"

	"github.com/gdrpc/gdrpc/ibverbs"
	"golang.org/x/sys/unix"
)

// maxAsyncEvents is how many events wait for AsyncEvent; the oldest go first.
const maxAsyncEvents = 128

// asyncQueue takes the asynchronous events of a context from the kernel, acts on
// those that concern the objects, and keeps them for AsyncEvent.
type asyncQueue struct {
	ctx  *Context
	file *eventFile
	done chan struct{} // closed when the goroutine has ended

	mu     sync.Mutex // a leaf
	wake   sync.Cond  // on mu
	events []ibverbs.AsyncEvent
	err    error // no more events come
}

func newAsyncQueue(c *Context) (*asyncQueue, error) {
	file, err := newEventFile(int(c.c.async_fd), "async events of "+c.name)
	if err != nil {
		return nil, c.refuse("open_device", err, "")
	}
	q := &asyncQueue{ctx: c, file: file, done: make(chan struct{})}
	q.wake.L = &q.mu
	go q.run()
	return q, nil
}

// run reads events until stop.
func (q *asyncQueue) run() {
	defer close(q.done)
	for {
		var e C.struct_gv_event
		var errno syscall.Errno
		err := q.file.read(func() bool {
			errno = syscall.Errno(C.gv_next_async_event(q.ctx.lib.fn, q.ctx.c, &e))
			return errno != unix.EAGAIN
		})
		switch {
		case err != nil: // stopped
			q.end(q.ctx.refuse("get_async_event", ibverbs.ErrClosed, ""))
			return
		case errno == unix.EINTR:
		case errno != 0:
			q.end(failed("get_async_event", q.ctx.name, C.int(errno), ""))
			return
		default:
			q.act(ibverbs.AsyncEvent{Type: ibverbs.AsyncEventType(e._type), Port: int(e.port), QP: uint32(e.qp_num)}, uint64(e.id))
		}
	}
}

// act acts on one event and keeps it. id names the queue of a CQ event.
func (q *asyncQueue) act(e ibverbs.AsyncEvent, id uint64) {
	if e.Type == ibverbs.EventCQErr {
		if cq := q.ctx.cq(id); cq != nil {
			cq.fail()
		}
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.events) == maxAsyncEvents {
		q.events = slices.Delete(q.events, 0, 1)
	}
	q.events = append(q.events, e)
	q.wake.Signal()
}

// end makes AsyncEvent return err once the events that there are have been taken.
func (q *asyncQueue) end(err error) {
	q.mu.Lock()
	q.err = err
	q.mu.Unlock()
	q.wake.Broadcast()
}

// stop ends the goroutine and everybody in next.
func (q *asyncQueue) stop() {
	q.file.close()
	<-q.done
	q.mu.Lock()
	q.events = nil
	q.err = q.ctx.refuse("get_async_event", ibverbs.ErrClosed, "")
	q.mu.Unlock()
	q.wake.Broadcast()
}

// next waits for an event.
func (q *asyncQueue) next() (ibverbs.AsyncEvent, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.events) == 0 {
		if q.err != nil {
			return ibverbs.AsyncEvent{}, q.err
		}
		q.wake.Wait()
	}
	e := q.events[0]
	q.events = slices.Delete(q.events, 0, 1)
	return e, nil
}

// AsyncEvent waits for something to happen to the device, a port or a queue
// pair. If nobody waits, the last 128 events are kept.
func (c *Context) AsyncEvent() (ibverbs.AsyncEvent, error) { return c.async.next() }
