package conn

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/gpubuf/host"
	"github.com/gdrpc/gdrpc/internal/ipc"
)

// ipcImport is a region of the peer that this process may read. The link's mu
// guards it, but for opened.
type ipcImport struct {
	id    uint64
	share gpubuf.Share // without its File
	view  *host.View   // of a memfd, mapped when it was announced; else nil
	users int          // landings that read it
	ended bool         // the peer has ended it, or the link has

	mu      sync.Mutex                      // held while one is opened
	opened  map[gpubuf.Opener]gpubuf.Memory // of memory of a GPU, by the device that reads it; guarded by mu
	refused map[gpubuf.Opener]error         // why a device cannot open it; guarded by mu
}

// takeBoard maps the peer's board.
func (k *ipcLink) takeBoard(m *ipc.Message) error {
	defer closeFile(m)
	if m.Size > boardSlots*8 {
		return fmt.Errorf("the peer's board has %d bytes, at most %d are allowed", m.Size, boardSlots*8)
	}
	foreign := &k.c.d.ipc.foreign
	if err := foreign.reserve(m.Size); err != nil {
		return err
	}
	v, err := host.OpenView(gpubuf.Share{Kind: gpubuf.KindHost, Size: m.Size, File: m.File})
	if err != nil {
		foreign.release(m.Size)
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.board != nil || k.why != nil {
		foreign.release(m.Size)
		return errors.Join(errors.New("a second board"), v.Close())
	}
	k.board = v
	k.notify()
	return nil
}

// takeRegion enters a region that the peer announces. Whatever is wrong with it
// ends the link.
func (k *ipcLink) takeRegion(m *ipc.Message) error {
	defer closeFile(m)
	im := &ipcImport{id: m.Region, share: gpubuf.Share{Kind: gpubuf.Kind(m.Kind), Size: m.Size, Handle: m.Handle}}
	if err := k.admit(m); err != nil {
		return err
	}
	if err := im.mapView(m.File, &k.c.d.ipc.foreign); err != nil {
		return fmt.Errorf("region %d: %w", m.Region, err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.why != nil {
		k.shut(im) // no more than a view
		return k.why
	}
	if k.imports == nil {
		k.imports = make(map[uint64]*ipcImport)
	}
	k.imports[im.id] = im
	k.standing++
	k.mapped += m.Size
	k.notify()
	return nil
}

// mapView maps an import that comes with a descriptor, and counts it until shut.
func (im *ipcImport) mapView(f *os.File, foreign *foreignMemory) error {
	kind := im.share.Kind
	inHost := kind == gpubuf.KindHost || kind == gpubuf.KindEmu
	if f != nil && !inHost {
		return fmt.Errorf("a descriptor for %v memory", kind)
	}
	if err := foreign.reserve(im.share.Size); err != nil || !inHost {
		return err
	}
	var err error
	s := im.share
	s.File = f
	if im.view, err = host.OpenView(s); err != nil {
		foreign.release(s.Size)
	}
	return err
}

// admit checks an announcement against what the peer has announced before. Only
// the reading goroutine adds regions.
func (k *ipcLink) admit(m *ipc.Message) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.imports[m.Region] != nil:
		return fmt.Errorf("region %d was announced twice", m.Region)
	case k.standing >= maxRegions:
		return fmt.Errorf("the peer announces more than %d regions", maxRegions)
	case m.Size > maxMapped-k.mapped:
		return fmt.Errorf("the peer announces more than %d bytes", int64(maxMapped))
	}
	return nil
}

// endImport unmaps a region that the peer is about to free.
func (k *ipcLink) endImport(id uint64) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	im := k.imports[id]
	if im == nil || im.ended {
		return fmt.Errorf("the end of region %d, which was not announced", id)
	}
	if len(k.queue) >= maxQueued {
		return fmt.Errorf("the peer does not read the answers to its announcements; %d wait", len(k.queue))
	}
	k.end(im)
	return nil
}

// end has no landing take the import any more, and closes it when none reads
// it. mu is held.
func (k *ipcLink) end(im *ipcImport) {
	if im.ended {
		return
	}
	im.ended = true
	k.standing--
	k.mapped -= im.share.Size
	if im.users == 0 {
		k.discard(im)
	}
}

// discard closes imports that no landing reads, without mu, since closing memory
// of a GPU takes its time. Until then they count as being read. The reading
// goroutine still runs, so that close waits. mu is held.
func (k *ipcLink) discard(list ...*ipcImport) {
	for _, im := range list {
		delete(k.imports, im.id)
	}
	k.reading++
	k.wg.Add(1)
	go func() {
		defer k.wg.Done()
		for _, im := range list {
			k.shut(im)
		}
		k.mu.Lock()
		defer k.mu.Unlock()
		for _, im := range list {
			if im.share.Handle != nil && k.why == nil {
				k.queue = append(k.queue, &ipc.Message{Type: ipc.TypeClosed, Region: im.id})
			}
		}
		k.pump()
		k.readDone()
	}()
}

// shut frees what an import holds.
func (k *ipcLink) shut(im *ipcImport) {
	var errs []error
	if im.view != nil {
		errs = append(errs, im.view.Close())
	}
	for _, m := range im.opened {
		errs = append(errs, m.Free())
	}
	im.opened = nil
	k.c.d.ipc.foreign.release(im.share.Size)
	if err := errors.Join(errs...); err != nil {
		k.c.d.cfg.Logger.Error("gdrpc: closing memory of another process", "err", err)
	}
}

// dropImports ends all imports, and the board. mu is held.
func (k *ipcLink) dropImports() {
	var idle []*ipcImport
	for _, im := range k.imports {
		if !im.ended && im.users == 0 {
			idle = append(idle, im)
			im.ended = true
		}
		k.end(im)
	}
	if len(idle) > 0 {
		k.discard(idle...)
	}
	k.closeBoard()
}

// closeBoard unmaps the board of a link that has ended when no landing looks at
// it. mu is held.
func (k *ipcLink) closeBoard() {
	if k.why == nil || k.reading > 0 || k.board == nil {
		return
	}
	k.c.d.ipc.foreign.release(int64(len(k.board.Bytes())))
	if err := k.board.Close(); err != nil {
		k.c.d.cfg.Logger.Error("gdrpc: closing a board", "err", err)
	}
	k.board = nil
}

// Errors of hold; both have the landing go another way.
var errRegionLate = fmt.Errorf("the region has not come on the Unix socket within %v", ipcPatience)

// hold takes the import that a place names, which may be on its way, for
// reading until release. It waits no longer than patience, for ctx, and for
// end.
func (k *ipcLink) hold(ctx context.Context, id uint64, end <-chan struct{}) (*ipcImport, error) {
	var late <-chan time.Time
	for {
		k.mu.Lock()
		im, why, ch := k.take(id), k.why, k.changed
		k.mu.Unlock()
		if im != nil {
			return im, nil
		}
		if why != nil {
			return nil, why
		}
		if late == nil {
			timer := time.NewTimer(k.patience)
			defer timer.Stop()
			late = timer.C
		}
		select {
		case <-ch:
		case <-late:
			return nil, errRegionLate
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-end:
			return nil, errRegionLate // nobody hears it
		}
	}
}

// tryHold is hold that waits for nothing: nil then.
func (k *ipcLink) tryHold(id uint64) *ipcImport {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.take(id)
}

// take is hold's part under mu, which is held: nil if the import is not there.
func (k *ipcLink) take(id uint64) *ipcImport {
	im := k.imports[id]
	if k.why != nil || im == nil || im.ended || k.board == nil {
		return nil
	}
	im.users++
	k.reading++
	return im
}

// release ends what hold began.
func (k *ipcLink) release(im *ipcImport) {
	k.mu.Lock()
	defer k.mu.Unlock()
	im.users--
	if im.ended && im.users == 0 {
		k.discard(im)
	}
	k.readDone()
}

// readDone notes that one reader less is there. mu is held.
func (k *ipcLink) readDone() {
	k.reading--
	k.closeBoard()
	if k.why != nil {
		k.notify()
	}
}

// stands reports whether an offer stood until after everything that the caller
// has read before. The caller holds an import.
func (k *ipcLink) stands(p Place) bool {
	k.mu.Lock()
	b := k.board
	k.mu.Unlock()
	return b.Holds(int(p.Slot), p.Generation)
}

// openedBy returns the import's memory if open has returned it before, and is not at
// it now.
func (im *ipcImport) openedBy(dev gpubuf.Opener) gpubuf.Memory {
	if !im.mu.TryLock() {
		return nil
	}
	defer im.mu.Unlock()
	return im.opened[dev]
}

// open returns the import's memory as dev reads it. It is freed with the import.
// A device that cannot open it is asked once.
func (im *ipcImport) open(dev gpubuf.Opener) (gpubuf.Memory, error) {
	im.mu.Lock()
	defer im.mu.Unlock()
	if m := im.opened[dev]; m != nil {
		return m, nil
	}
	if err := im.refused[dev]; err != nil {
		return nil, err
	}
	m, err := dev.OpenShare(im.share)
	if err != nil {
		if im.refused == nil {
			im.refused = make(map[gpubuf.Opener]error)
		}
		im.refused[dev] = err
		return nil, err
	}
	if im.opened == nil {
		im.opened = make(map[gpubuf.Opener]gpubuf.Memory)
	}
	im.opened[dev] = m
	return m, nil
}
