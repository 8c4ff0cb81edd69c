package conn

import (
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/internal/ipc"
)

// maxRegions bounds the regions of one side that the other has open on one Conn,
// and maxMapped their bytes. A peer that announces more loses the link.
const (
	maxRegions = 1024
	maxMapped  = 256 << 30
)

// maxQueued bounds what waits to be sent on the Unix socket, with its
// descriptors, to a peer that does not read.
const maxQueued = 4 * maxRegions

// Place says where the source of an offer lies, for a receiver on the same
// host. The zero Place is none.
type Place struct {
	Region     uint64 // id of the sender's region, announced on the Unix socket
	Offset     int64  // of the source in the region
	Slot       uint32 // word of the sender's board
	Generation uint64 // what the word holds while the offer stands
}

// ipcExport is a region of this process that the peer may read.
type ipcExport struct {
	region *gpubuf.Region
	told   bool          // it was announced; false if it cannot be shared
	stop   func() bool   // takes the region's release hook back
	acked  chan struct{} // closed when the peer has closed it; nil if nobody waits for that
}

// Place has the peer read the source of o from memory, if it can: it is a
// process of this host, and the source lies in memory that can be shared. What
// the peer needs is sent from elsewhere; Place does not wait. The zero Place,
// also of a nil Conn, says that the bytes must be sent.
func (c *Conn) Place(o *Offer) Place {
	if c == nil || o.size == 0 || c.ipc.reason() != nil {
		return Place{}
	}
	region := o.src.Region()
	if !region.Shared() || o.SourceErr() != nil { // what is asked for instead says so
		return Place{}
	}
	b, err := c.d.ipc.standing()
	if err != nil {
		c.d.ipc.noBoard.Do(func() { c.ipc.notShared(region, err) })
		return Place{}
	}
	if !c.ipc.announce(region, b) {
		return Place{}
	}
	return o.placeOn(b)
}

// placeOn enters the offer on the board, once. It is on one board only: a Conn
// of another Domain, with another board, gets none.
func (o *Offer) placeOn(b *board) Place {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.withdrawn || o.board != nil && o.board != b {
		return Place{}
	}
	if o.board == nil {
		slot, generation, ok := b.enter()
		if !ok {
			return Place{}
		}
		o.board = b
		o.place = Place{Region: o.src.Region().ID(), Offset: o.src.Offset(), Slot: slot, Generation: generation}
	}
	return o.place
}

// retract takes the offer off the board. mu is held.
func (o *Offer) retract() {
	if o.board != nil {
		o.board.retract(o.place.Slot)
		o.board = nil
	}
}

// placed announces the region of an offer that has a place, on one more Conn.
func (c *Conn) placed(o *Offer) {
	o.mu.Lock()
	b, region := o.board, o.place.Region
	o.mu.Unlock()
	if b == nil || !c.ipc.untold(region) || !o.read(c) { // or it has been withdrawn, and its source may be freed
		return
	}
	defer o.readDone(c)
	if own, _ := c.d.ipc.standing(); own == b {
		c.ipc.announce(o.src.Region(), b)
	}
}

// untold reports whether a region has not been announced, and may be.
func (k *ipcLink) untold(region uint64) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.why == nil && k.exports[region] == nil
}

// announce has the peer told of a region, once, behind the board. The caller
// holds a slice of the region.
func (k *ipcLink) announce(r *gpubuf.Region, b *board) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.why != nil {
		return false
	}
	if e := k.exports[r.ID()]; e != nil {
		return e.told
	}
	if len(k.exports) >= maxRegions || r.Size() > maxMapped-k.shared || len(k.queue) >= maxQueued {
		return false // the peer takes no more
	}
	err := k.share(r, b)
	switch {
	case err == nil:
		k.short = false
		return true
	case !outOfDescriptors(err):
		k.notShared(r, err)
	case !k.short: // once for a while in which there are none
		k.short = true
		k.notShared(r, err)
	}
	return false
}

func (k *ipcLink) notShared(r *gpubuf.Region, err error) {
	k.c.d.cfg.Logger.Warn("gdrpc: cannot share memory; attachments from it go another way", "device", r.Device().Name(), "err", err)
}

// outOfDescriptors reports whether err comes from a limit on descriptors, and so
// may be different the next time.
func outOfDescriptors(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}

// share queues what tells the peer of a region. A region that cannot be shared
// is remembered too, unless that may change. mu is held.
func (k *ipcLink) share(r *gpubuf.Region, b *board) error {
	if !k.told {
		s, err := b.words.Share()
		if err != nil {
			return err
		}
		k.told = true
		k.queue = append(k.queue, &ipc.Message{Type: ipc.TypeBoard, Size: s.Size, File: s.File})
	}
	s, shareErr := r.Share()
	if outOfDescriptors(shareErr) {
		return shareErr
	}
	e := &ipcExport{region: r}
	var err error
	if e.stop, err = r.OnRelease(func() { k.released(r.ID()) }); err != nil {
		closeFile(&ipc.Message{File: s.File})
		return errors.Join(shareErr, err)
	}
	if k.exports == nil {
		k.exports = make(map[uint64]*ipcExport)
	}
	k.exports[r.ID()] = e
	if shareErr != nil {
		return shareErr
	}
	if s.File == nil {
		e.acked = make(chan struct{})
	}
	e.told = true
	k.shared += r.Size()
	k.queue = append(k.queue, &ipc.Message{Type: ipc.TypeRegion, Region: r.ID(), Kind: uint8(s.Kind), Size: s.Size, Handle: s.Handle, File: s.File})
	k.pump()
	return nil
}

// pump starts the goroutine that sends what is queued, unless there is one. It
// ends when the queue is empty. mu is held.
func (k *ipcLink) pump() {
	if len(k.queue) == 0 || k.sending || k.sock == nil || k.why != nil || k.closing {
		return
	}
	k.sending = true
	k.wg.Add(1)
	go k.send()
}

func (k *ipcLink) send() {
	defer k.wg.Done()
	for {
		k.mu.Lock()
		if len(k.queue) == 0 {
			k.sending = false
			k.mu.Unlock()
			return
		}
		m, sock := k.queue[0], k.sock
		k.queue = k.queue[1:]
		k.mu.Unlock()
		err := sock.Send(m)
		closeFile(m)
		if err != nil {
			k.lose(fmt.Errorf("sending on the Unix socket: %w", err), true)
		}
	}
}

// released runs before the memory of an exported region is freed. A mapping of
// a memfd keeps its pages; the memory of a GPU must not be freed before the peer
// has closed it.
func (k *ipcLink) released(id uint64) {
	k.mu.Lock()
	e := k.exports[id]
	if e == nil {
		k.mu.Unlock()
		return
	}
	if e.acked == nil {
		k.forget(id)
	}
	if k.why == nil && e.told {
		k.queue = append(k.queue, &ipc.Message{Type: ipc.TypeEnd, Region: id})
		k.pump()
	}
	k.mu.Unlock()
	if e.acked != nil {
		k.awaitClosed(id, e)
	}
}

// awaitClosed waits until the peer has closed a region; past the bound the Conn
// is closed, and the memory kept until the peer's end of the socket is.
func (k *ipcLink) awaitClosed(id uint64, e *ipcExport) {
	bound := k.c.d.cfg.DrainTimeout
	timer := time.NewTimer(bound)
	defer timer.Stop()
	select {
	case <-e.acked:
	case <-k.gone:
	case <-timer.C:
		e.region.KeepUntil(k.gone)
		k.c.fail(fmt.Errorf("the peer did not close memory that is being freed for %v", bound))
		return // the export stays, so that the peer's end is waited for
	}
	k.mu.Lock()
	k.forget(id)
	k.mu.Unlock()
}

// forget takes an export out. mu is held.
func (k *ipcLink) forget(id uint64) {
	if e := k.exports[id]; e != nil && e.told {
		k.shared -= e.region.Size()
	}
	delete(k.exports, id)
}

// acknowledged notes that the peer has closed a region.
func (k *ipcLink) acknowledged(id uint64) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	e := k.exports[id]
	if e == nil || e.acked == nil {
		return nil // of a memfd, or of what was waited for too long
	}
	select {
	case <-e.acked:
		return fmt.Errorf("region %d closed twice", id)
	default:
		close(e.acked)
	}
	return nil
}

// mustHearEnd reports whether the peer may have memory open that must not be
// freed before it has closed it.
func (k *ipcLink) mustHearEnd() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, e := range k.exports {
		if e.acked != nil {
			return true
		}
	}
	return false
}

// dropExports takes back the hooks of the regions that may be freed at any
// time: all, once the peer has nothing open any more.
func (k *ipcLink) dropExports(all bool) {
	k.mu.Lock()
	var stops []func() bool
	for id, e := range k.exports {
		if all || e.acked == nil {
			stops = append(stops, e.stop)
			k.forget(id)
		}
	}
	k.mu.Unlock()
	for _, stop := range stops {
		stop()
	}
}
