package conn

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/gdrpc/gdrpc/gpubuf"
)

// opened takes the peer's BulkOpen. An error is a rule broken.
func (m *moreRails) opened(f *frame) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case f.rail >= m.most() || f.rail%2 == m.first%2 || f.rail == 0 || m.taken[f.rail] != nil:
		return fmt.Errorf("bulk lane %d is opened, whose number is not free", f.rail)
	case max(f.port.qp.QPNum, f.port.qp.PSN) > 1<<24-1:
		return fmt.Errorf("bulk lane with queue pair number %d, PSN %d: want 24 bits each", f.port.qp.QPNum, f.port.qp.PSN)
	case m.closed:
		return nil
	}
	theirs, port, source := &further{index: f.rail}, f.port, m.c.sourceOf(f.token)
	m.taken[f.rail] = theirs
	m.tasks.Go(func() { m.answer(theirs, port, source) })
	return nil
}

// answer is the other side's part.
func (m *moreRails) answer(f *further, port railPort, source gpubuf.Device) {
	v, err := m.accept(port, source)
	if err != nil {
		m.c.control.send(frame{typ: frameBulkReady, rail: f.index, status: bulkFailed})
		if m.c.outlive {
			m.say(f)
		}
		level := slog.LevelWarn
		if m.endless.Swap(true) { // the peer may ask as often as it likes
			level = slog.LevelDebug
		}
		m.c.d.cfg.Logger.Log(m.ctx, level, "gdrpc: no end for the peer's bulk lane", "remote", m.c.RemoteAddr().String(), "err", err)
		return
	}
	m.enter(f, v.lanes[0])
	m.c.control.send(frame{typ: frameBulkReady, rail: f.index, port: railPort{end: v.Endpoint(), qp: v.QPs()[0]}})
	ctx, cancel := context.WithTimeout(m.ctx, railBound)
	defer cancel()
	err = v.AwaitReady(ctx)
	if err == nil {
		err = v.SendReady(ctx)
	}
	m.report(f, v.nic, m.settle(f, err))
}

// accept makes a lane that receives from, and sends to, the peer's, which the peer
// wants for memory of the device source; nil: it does not matter which.
func (m *moreRails) accept(port railPort, source gpubuf.Device) (*VerbsLanes, error) {
	if err := port.end.Check(); err != nil {
		return nil, err
	}
	v, err := m.make(m.byUse(m.c.d.nearSource(source)), &port.end)
	if err != nil {
		return nil, err
	}
	if err = v.Connect(port.end, []QPInfo{port.qp}); err == nil {
		err = v.Start()
	}
	if err != nil {
		v.Close()
		m.drop(v.lanes[0])
		return nil, err
	}
	return v, nil
}
