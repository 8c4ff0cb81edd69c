package conn

import (
	"context"
	"errors"

	"github.com/gdrpc/gdrpc/gpubuf"
)

// earlyCopy is a landing's copy in the background.
type earlyCopy struct {
	copy gpubuf.Copy
	from *ipcImport // held
}

var errDropped = errors.New("nobody asked for the landing, which had begun")

// LandAhead is LandFrom for a landing that nobody has asked for yet: it begins to
// copy memory of a GPU that both processes share. It does not block, unless the
// lanes die meanwhile, and returns nil if something would have to be waited for, or
// moved in another way. Wait or Drop must follow.
func (c *Conn) LandAhead(token Token, flags OfferFlags, from Place, dst *gpubuf.Slice) *Landing {
	dev, ok := dst.Device().(gpubuf.Opener)
	starter, can := dev.(gpubuf.StartCopier)
	if !ok || !can || flags&OfferPending != 0 || dst.Event() != nil || dst.Len() > devicePiece || c.d.cfg.Require > PathIPC {
		return nil
	}
	im := c.ipc.tryHold(from.Region)
	if im == nil {
		return nil
	}
	src := im.openedBy(dev)
	if src == nil || from.outside(im, dst.Len()) != nil {
		c.ipc.release(im)
		return nil
	}
	// The GPU begins first: what follows takes as long as some of its copies.
	under, err := starter.StartCopy(dst.Ptr(), src.Base()+gpubuf.DevicePtr(from.Offset), dst.Len())
	if err != nil { // Wait of a later landing meets it again
		c.ipc.release(im)
		return nil
	}
	l := c.landFrom(token, flags, from, dst, true)
	if l.begin == nil || !l.enter() { // the lanes or the shared memory are gone
		_ = under.Wait()
		c.ipc.release(im)
		l.Drop()
		return nil
	}
	l.early = &earlyCopy{copy: under, from: im}
	c.stats.begun.Add(1)
	return l
}

// Drop gives up a landing for which Wait has not been called. It does not block;
// see Consumed.
func (l *Landing) Drop() {
	select {
	case <-l.done:
	default:
		l.c.recv.cancel(l, errDropped)
	}
	if l.early != nil && l.claimed.CompareAndSwap(false, true) {
		l.c.stats.inVain.Add(1)
		go l.finishEarly(context.Background())
	}
}

// finishEarly waits for the copy that LandAhead has begun.
func (l *Landing) finishEarly(ctx context.Context) {
	err := l.early.copy.Wait()
	if err == nil && !l.c.ipc.stands(l.place) {
		err = errRetracted
	}
	l.c.ipc.release(l.early.from)
	l.leave(ctx, err)
}
