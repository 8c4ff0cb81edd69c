package conn

import (
	"context"
	"errors"
	"fmt"

	"github.com/gdrpc/gdrpc/gpubuf"
)

var (
	errNoPlace   = errors.New("the sender names no shared memory: the source lies in none (host.New; gpubuf.Wrap without WrapConfig.Export, or of host or emulated memory), or there is no ipc on its side, as its Stats.IPC then says")
	errRetracted = errors.New("the offer was withdrawn, or never stood, in the sender's shared memory")
)

// planIPC decides whether the landing reads its source from shared memory, and
// notes and returns why not.
func (l *Landing) planIPC() error {
	why := l.c.ipc.reason()
	if why == nil && l.place.Region == 0 {
		why = errNoPlace
	}
	if why != nil {
		l.c.stats.noteNotIPC(why)
		return why
	}
	l.begin = make(chan struct{})
	return nil
}

func (s *counters) noteNotIPC(why error) {
	if old := s.notIPC.Load(); old == nil || *old != why.Error() {
		text := why.Error()
		s.notIPC.Store(&text)
	}
}

// readPlace lands l from shared memory. What keeps it from that has the landing
// ask for its bytes in the ordinary way; the sender then has the last word on
// whether the offer stands.
func (l *Landing) readPlace(ctx context.Context) {
	select {
	case <-l.begin:
	case <-l.done:
		return
	case <-ctx.Done():
		return // Wait cancels
	}
	im, err := l.c.ipc.hold(ctx, l.place.Region, l.done)
	if err != nil {
		l.notRead(ctx, err)
		return
	}
	defer l.c.ipc.release(im)
	if !l.enter() {
		return
	}
	err = l.copyFrom(ctx, im)
	if err == nil && !l.c.ipc.stands(l.place) {
		err = errRetracted
	}
	l.leave(ctx, err)
}

// enter has dst kept until leave; false if the landing has ended.
func (l *Landing) enter() bool {
	b := l.c.recv
	b.mu.Lock()
	defer b.mu.Unlock()
	if l.ended {
		return false
	}
	l.open++
	return true
}

// leave books the outcome of a copy.
func (l *Landing) leave(ctx context.Context, err error) {
	b := l.c.recv
	b.mu.Lock()
	switch ended := l.used(); {
	case ended:
	case err == nil:
		l.path, l.landed = PathIPC, l.size
		b.arrived(l)
	default:
		b.mu.Unlock()
		l.notRead(ctx, err)
		return
	}
	b.mu.Unlock()
}

// notRead goes on with a landing that could not be read from shared memory.
func (l *Landing) notRead(ctx context.Context, err error) {
	var outside *outsideError
	switch {
	case ctx.Err() != nil: // Wait cancels
	case errors.As(err, &outside):
		l.c.recv.cancel(l, err)
	default:
		l.c.stats.noteNotIPC(err)
		l.goByLanes(err)
	}
}

// goByLanes has a landing ask for its bytes in the ordinary way, since it could not
// be read from shared memory. dst is held while that is prepared: the landing may
// end meanwhile.
func (l *Landing) goByLanes(notIPC error) {
	if !l.enter() {
		return
	}
	err := l.prepare(notIPC)
	b := l.c.recv
	b.mu.Lock()
	defer b.mu.Unlock()
	switch ended := l.used(); {
	case ended:
	case err != nil:
		b.stop(l, err)
	default:
		b.queue(l)
	}
}

// outsideError is a place that its region does not hold: a peer that is wrong
// about that is not asked again.
type outsideError struct {
	place Place
	size  int64
	held  int64
}

func (e *outsideError) Error() string {
	return fmt.Sprintf("the peer refused itself: %d bytes at offset %d lie outside region %d of %d bytes", e.size, e.place.Offset, e.place.Region, e.held)
}

// outside says that size bytes from the place on do not lie in its region; nil if
// they do.
func (p Place) outside(im *ipcImport, size int64) error {
	off, held := p.Offset, im.share.Size
	if off < 0 || size > held || off > held-size {
		return &outsideError{place: p, size: size, held: held}
	}
	return nil
}

// copyFrom copies the source to dst. Whoever changes the source meanwhile
// spoils the copy and no more.
func (l *Landing) copyFrom(ctx context.Context, im *ipcImport) error {
	if err := l.place.outside(im, l.size); err != nil {
		return err
	}
	off := l.place.Offset
	if im.view != nil {
		src := im.view.Bytes()[off : off+l.size]
		return l.inPieces(ctx, hostPiece, hostWorkers(l.size), func(at, n int64) error { return l.dst.CopyIn(at, src[at:at+n]) })
	}
	return l.copyDevice(ctx, im, gpubuf.DevicePtr(off))
}

// inPieces copies what the landing is of, in pieces if it is larger than one.
func (l *Landing) inPieces(ctx context.Context, piece int64, workers int, move func(at, n int64) error) error {
	if l.size <= piece { // the common small one: nothing to divide or interrupt
		return move(0, l.size)
	}
	c := copying{ctx: ctx, end: l.done, size: l.size, piece: piece, workers: workers}
	return c.run(move)
}

// copyDevice copies memory of a GPU: by dst's own device, or, to host memory,
// by one that the configuration names.
func (l *Landing) copyDevice(ctx context.Context, im *ipcImport, off gpubuf.DevicePtr) error {
	if dev, ok := l.dst.Device().(gpubuf.Opener); ok && dev.Kind() == im.share.Kind {
		src, err := im.open(dev)
		if err != nil {
			return err
		}
		return l.inPieces(ctx, devicePiece, 1, func(at, n int64) error {
			return dev.Copy(l.dst.Ptr()+gpubuf.DevicePtr(at), src.Base()+off+gpubuf.DevicePtr(at), n)
		})
	}
	bytes := l.dst.HostBytes()
	if bytes == nil {
		return fmt.Errorf("%s cannot open %v memory of another process", l.dst.Device().Name(), im.share.Kind)
	}
	err := fmt.Errorf("no device of this process opens %v memory of another (Config.Openers)", im.share.Kind)
	for _, dev := range l.c.d.cfg.Openers {
		if dev.Kind() != im.share.Kind {
			continue
		}
		var src gpubuf.Memory
		if src, err = im.open(dev); err == nil {
			return l.inPieces(ctx, devicePiece, 1, func(at, n int64) error {
				return dev.CopyOut(bytes[at:at+n], src.Base()+off+gpubuf.DevicePtr(at))
			})
		}
	}
	return err
}
