//go:build linux && cgo

package verbs

/*
#include "shim.h"
#cgo noescape gv_next_cq_event
#cgo nocallback gv_next_cq_event
*/
import "C"

import (
	"slices"
	"sync"
	"syscall"

	"github.com/gdrpc/gdrpc/ibverbs"
	"github.com/gdrpc/gdrpc/internal/leak"
	"golang.org/x/sys/unix"
)

// CompChannel delivers completion events.
type CompChannel struct {
	node
	ctx  *Context
	file *eventFile

	// mu is held during calls into libibverbs that do not block.
	mu     sync.Mutex
	ch     *C.struct_gv_comp_channel // nil once destroyed
	closed bool
	queues int   // that libibverbs has or will have
	lost   bool  // libibverbs keeps a queue of a removed device
	kicked bool  // Interrupt was called, and no Wait has met it; the file is interrupted meanwhile
	dead   []*CQ // queues to return from Wait, although the kernel raises no event; the file is interrupted while there are any
}

var _ ibverbs.CompChannel = (*CompChannel)(nil)

// CreateCompChannel creates a completion event channel.
//
//	struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context)
func (c *Context) CreateCompChannel() (ibverbs.CompChannel, error) {
	ch := &CompChannel{ctx: c}
	c.child(&ch.node, "comp_channel")
	if err := ch.join("create_comp_channel", leak.Track("verbs.CompChannel"), &c.node); err != nil {
		return nil, err
	}
	var made *C.struct_gv_comp_channel
	if errno := C.gv_create_comp_channel(c.lib.fn, c.c, &made); errno != 0 {
		ch.leave()
		return nil, failed("create_comp_channel", c.name, errno, "")
	}
	file, err := newEventFile(int(made.fd), ch.name)
	if err != nil {
		C.gv_destroy_comp_channel(c.lib.fn, made)
		ch.leave()
		return nil, ch.refuse("create_comp_channel", err, "")
	}
	ch.ch, ch.file = made, file
	return ch, nil
}

// Wait waits for an event in the runtime's poller. Events are acknowledged as
// they are taken.
func (ch *CompChannel) Wait() (ibverbs.CQ, error) {
	for {
		var cq *CQ
		var stop error
		err := ch.file.read(func() bool {
			cq, stop = ch.take()
			return cq != nil || stop != nil
		})
		if err != nil { // interrupted or closed
			cq, stop = ch.takeOther()
		}
		if cq != nil {
			return cq, nil
		}
		if stop != nil {
			return nil, stop
		}
	}
}

// take returns the next queue with an event, nil if there is none.
//
//	int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **cq_context)
func (ch *CompChannel) take() (*CQ, error) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	for !ch.closed {
		var id C.uint64_t
		switch errno := C.gv_next_cq_event(ch.ctx.lib.fn, ch.ch, &id); syscall.Errno(errno) {
		case 0:
			if cq := ch.ctx.cq(uint64(id)); cq != nil {
				return cq, nil
			}
		case unix.EAGAIN:
			return nil, nil
		case unix.EINTR:
		default:
			return nil, failed("get_cq_event", ch.name, errno, "")
		}
	}
	return nil, ch.refuse("get_cq_event", ibverbs.ErrClosed, "")
}

// takeOther returns what Wait was interrupted for: ErrInterrupted, or a dead
// queue that it has not returned yet, nil if there is none.
func (ch *CompChannel) takeOther() (*CQ, error) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	if ch.closed {
		return nil, ch.refuse("get_cq_event", ibverbs.ErrClosed, "")
	}
	var cq *CQ
	for n := len(ch.dead); n > 0 && cq == nil; n-- {
		cq, ch.dead = ch.ctx.cq(ch.dead[n-1].id), ch.dead[:n-1] // nil once destroyed
	}
	var err error
	if cq == nil && ch.kicked {
		ch.kicked, err = false, ibverbs.ErrInterrupted
	}
	if len(ch.dead) == 0 && !ch.kicked {
		ch.file.resume()
	}
	return cq, err
}

// Interrupt has one Wait return ErrInterrupted.
func (ch *CompChannel) Interrupt() {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	if !ch.closed {
		ch.kicked = true
		ch.file.interrupt()
	}
}

// raise makes Wait return cq, which is dead.
func (ch *CompChannel) raise(cq *CQ) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	if !ch.closed {
		ch.dead = append(ch.dead, cq)
		ch.file.interrupt()
	}
}

// Close unblocks Wait. libibverbs has the channel until the last of its queues
// is destroyed.
func (ch *CompChannel) Close() error {
	ch.mu.Lock()
	first := !ch.closed
	ch.closed, ch.dead = true, nil
	ch.mu.Unlock()
	if first {
		ch.file.close() // it waits for take, which wants mu
	}
	ch.mu.Lock()
	defer ch.mu.Unlock()
	return ch.destroy()
}

// add counts a queue that is about to be made.
func (ch *CompChannel) add() (*C.struct_gv_comp_channel, error) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	if ch.closed {
		return nil, ch.refuse("create_cq", ibverbs.ErrClosed, "")
	}
	ch.queues++
	return ch.ch, nil
}

// remove undoes add. lost says that libibverbs could not destroy the queue.
func (ch *CompChannel) remove(cq *CQ, lost bool) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	ch.lost = ch.lost || lost
	ch.dead = slices.DeleteFunc(ch.dead, func(d *CQ) bool { return d == cq })
	if ch.queues--; ch.closed {
		_ = ch.destroy() // Close can be called again
	}
}

// destroy destroys the channel once nothing uses it. The caller holds mu.
//
//	int ibv_destroy_comp_channel(struct ibv_comp_channel *channel)
func (ch *CompChannel) destroy() error {
	if ch.queues > 0 || ch.ch == nil {
		return nil
	}
	if ch.lost { // it would refuse
		unix.Close(int(ch.ch.fd))
	} else if errno := C.gv_destroy_comp_channel(ch.ctx.lib.fn, ch.ch); errno != 0 {
		return failed("destroy_comp_channel", ch.name, errno, "")
	}
	ch.ch = nil
	ch.leave()
	return nil
}
