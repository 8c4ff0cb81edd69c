package conn

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/ibverbs"
	"github.com/gdrpc/gdrpc/ibverbs/route"
)

// Further bulk lanes of mode verbs, one for each NIC that a landing's device
// wants and the connection has no lane on. Whoever wants one opens it: BulkOpen,
// the peer's BulkReady, and Ready each way on the queue pairs. Until then, and
// for good if that fails, landings use the lanes that there are.
//
// Each side registers its sending half before its Ready is out, and requests on
// the lane once the peer's Ready is here, so that no request meets a lane that
// its owner does not know.

// railBound is how long opening a lane may take.
const railBound = 5 * time.Second

// moreRails are the further bulk lanes of a Conn.
type moreRails struct {
	c      *Conn
	ctx    context.Context // ends with close
	cancel context.CancelFunc
	tasks  sync.WaitGroup // added to under mu while not closed

	mu      sync.Mutex
	closed  bool                     // guarded by mu
	asked   map[*nic]bool            // a lane on that NIC was opened, or was tried; guarded by mu
	next    uint8                    // index of the next lane that this side opens; guarded by mu
	opening map[uint8]chan railReady // lanes whose BulkReady has not come; guarded by mu
	taken   map[uint8]bool           // indices that are in use; guarded by mu
	sends   map[uint8]*bulkSend      // guarded by mu
	lanes   []*Lane                  // guarded by mu
}

// railReady is the peer's BulkReady.
type railReady struct {
	port   railPort
	status bulkStatus
}

// start prepares for further lanes. The two sides count theirs apart.
func (m *moreRails) start(c *Conn) {
	m.c = c
	m.ctx, m.cancel = context.WithCancel(context.Background())
	m.asked = map[*nic]bool{c.lanes[1].nic: true}
	m.opening, m.taken, m.sends = make(map[uint8]chan railReady), make(map[uint8]bool), make(map[uint8]*bulkSend)
	m.next = 1
	if !c.client {
		m.next = 2
	}
}

// nearest returns the NIC by which memory of a device should be landed in, if the
// Conn has a lane on it. If not, it has one opened and returns nil.
func (c *Conn) nearest(dev gpubuf.Device) *nic {
	if !c.rails {
		return nil
	}
	n := c.d.nearest(dev)
	switch {
	case n == nil:
		return nil
	case c.recv.hasRail(n):
		return n
	}
	c.more.want(n)
	return nil
}

// nearest returns the NIC that memory of a device should use, by the
// configuration; nil if it names none.
func (d *Domain) nearest(dev gpubuf.Device) *nic {
	if d.cfg.Nearest == nil {
		return d.near.pick(dev)
	}
	var names []string
	for _, n := range d.nics {
		names = append(names, n.dev.Name())
	}
	name := d.cfg.Nearest(dev, names)
	for _, n := range d.nics {
		if n.dev.Name() == name {
			return n
		}
	}
	return nil
}

// hasRail reports whether a lane on n may bring landings.
func (b *bulkRecv) hasRail(n *nic) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range b.rails {
		if r.l.nic == n {
			return true
		}
	}
	return false
}

// want opens a lane on n, once.
func (m *moreRails) want(n *nic) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.asked[n] || m.closed || int(m.next) >= MaxBulkLanes {
		return
	}
	m.asked[n] = true
	index, ready := m.next, make(chan railReady, 1)
	m.next += 2
	m.taken[index], m.opening[index] = true, ready
	m.tasks.Go(func() { m.report(index, n, m.open(index, n, ready)) })
}

// report logs what came of opening a lane.
func (m *moreRails) report(index uint8, n *nic, err error) {
	log := m.c.d.cfg.Logger
	if err != nil {
		log.Warn("gdrpc: no bulk lane on a further NIC", "remote", m.c.RemoteAddr().String(), "device", n.dev.Name(), "err", err)
		return
	}
	log.Info("gdrpc: bulk lane on a further NIC", "remote", m.c.RemoteAddr().String(), "device", n.dev.Name(), "lane", index)
}

// open is the opener's part.
func (m *moreRails) open(index uint8, n *nic, ready <-chan railReady) error {
	ctx, cancel := context.WithTimeout(m.ctx, railBound)
	defer cancel()
	v, err := m.make([]*nic{n}, nil)
	if err != nil {
		return err
	}
	m.c.control.send(frame{typ: frameBulkOpen, rail: index, port: railPort{end: v.Endpoint(), qp: v.QPs()[0]}})
	var r railReady
	select {
	case r = <-ready:
	case <-ctx.Done():
		return fmt.Errorf("waiting for the peer's end: %w", context.Cause(ctx))
	}
	if r.status != bulkData {
		return errors.New("the peer has no lane for it")
	}
	if err := v.Connect(r.port.end, []QPInfo{r.port.qp}); err != nil {
		return err
	}
	send := m.enter(index, v.lanes[0])
	err = v.Start()
	if err == nil {
		err = v.SendReady(ctx)
	}
	if err == nil {
		err = v.AwaitReady(ctx)
	}
	return m.settle(index, v.lanes[0], send, err)
}

// opened takes the peer's BulkOpen. An error is a rule broken.
func (m *moreRails) opened(f *frame) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case int(f.rail) >= MaxBulkLanes || f.rail%2 == m.next%2 || f.rail == 0 || m.taken[f.rail]:
		return fmt.Errorf("bulk lane %d is opened, whose number is not free", f.rail)
	case max(f.port.qp.QPNum, f.port.qp.PSN) > 1<<24-1:
		return fmt.Errorf("bulk lane with queue pair number %d, PSN %d: want 24 bits each", f.port.qp.QPNum, f.port.qp.PSN)
	case m.closed:
		return nil
	}
	m.taken[f.rail] = true
	index, port := f.rail, f.port
	m.tasks.Go(func() { m.answer(index, port) })
	return nil
}

// answer is the other side's part.
func (m *moreRails) answer(index uint8, port railPort) {
	v, err := m.accept(port)
	if err != nil {
		m.c.control.send(frame{typ: frameBulkReady, rail: index, status: bulkFailed})
		m.c.d.cfg.Logger.Warn("gdrpc: no end for the peer's bulk lane", "remote", m.c.RemoteAddr().String(), "err", err)
		return
	}
	send := m.enter(index, v.lanes[0])
	m.c.control.send(frame{typ: frameBulkReady, rail: index, port: railPort{end: v.Endpoint(), qp: v.QPs()[0]}})
	ctx, cancel := context.WithTimeout(m.ctx, railBound)
	defer cancel()
	err = v.AwaitReady(ctx)
	if err == nil {
		err = v.SendReady(ctx)
	}
	m.report(index, v.nic, m.settle(index, v.lanes[0], send, err))
}

// accept makes a lane that receives from, and sends to, the peer's.
func (m *moreRails) accept(port railPort) (*VerbsLanes, error) {
	if err := port.end.Check(); err != nil {
		return nil, err
	}
	v, err := m.make(m.byUse(), &port.end)
	if err != nil {
		return nil, err
	}
	if err := v.Connect(port.end, []QPInfo{port.qp}); err != nil {
		return nil, err
	}
	return v, v.Start()
}

// byUse returns the NICs, those that have no lane of the Conn first: of equally
// good ones the first is chosen.
func (m *moreRails) byUse() []*nic {
	m.mu.Lock()
	defer m.mu.Unlock()
	list := slices.Clone(m.c.d.nics)
	slices.SortStableFunc(list, func(a, b *nic) int {
		switch {
		case m.asked[a] == m.asked[b]:
			return 0
		case m.asked[b]:
			return -1
		}
		return 1
	})
	return list
}

// make makes a bulk lane on one of the NICs. It is closed with the Conn.
func (m *moreRails) make(among []*nic, peer *route.Endpoint) (*VerbsLanes, error) {
	n, r, err := m.c.d.route(among, addrOf(m.c.stream.LocalAddr()), peer)
	if err != nil {
		return nil, err
	}
	v := &VerbsLanes{d: m.c.d, nic: n, route: r}
	l, err := m.c.d.newLaneOn(n, &v.route, LaneBulk)
	if err != nil {
		return nil, err
	}
	v.lanes = []*Lane{l}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lanes = append(m.lanes, l)
	return v, nil
}

// enter makes the sending half of a lane known.
func (m *moreRails) enter(index uint8, l *Lane) *bulkSend {
	s := newBulkSend(m.c, l)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.asked[l.nic] = true
	m.sends[index] = s
	return s
}

// settle has landings use a lane, and hands it its completions, or gives it up
// for a reason, which it returns. A request that the peer sends on a lane that
// was given up resets the Conn.
func (m *moreRails) settle(index uint8, l *Lane, send *bulkSend, err error) error {
	if err != nil {
		m.mu.Lock()
		delete(m.sends, index)
		m.mu.Unlock()
		l.Close()
		send.close()
		return err
	}
	r := m.c.recv.addRail(index, l)
	l.arm(m.c.bulkHandler(r, send), m.c.bulkLost)
	l.start()
	m.c.recv.resume()
	return nil
}

// sender returns the sending half of a lane; nil if there is none.
func (m *moreRails) sender(index uint8) *bulkSend {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.sends[index]
}

// ready takes the peer's BulkReady. An error is a rule broken.
func (m *moreRails) ready(f *frame) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	ch := m.opening[f.rail]
	if ch == nil {
		return fmt.Errorf("bulk lane %d is ready, which was not opened", f.rail)
	}
	delete(m.opening, f.rail)
	if f.status == bulkData {
		if err := f.port.end.Check(); err != nil || max(f.port.qp.QPNum, f.port.qp.PSN) > 1<<24-1 {
			return fmt.Errorf("bulk lane %d is ready at an impossible port (%v)", f.rail, err)
		}
	}
	ch <- railReady{f.port, f.status}
	return nil
}

// stop ends what opens lanes and closes all that there are. Its queue pairs are
// then destroyed.
func (m *moreRails) stop() {
	if m.c == nil {
		return
	}
	m.mu.Lock()
	m.closed = true
	m.mu.Unlock()
	m.cancel()
	m.tasks.Wait()
	for _, l := range m.lanes { // nothing adds to it any more
		l.Close()
	}
}

// close gives back what outstanding sends held, after stop.
func (m *moreRails) close() {
	for _, s := range m.sends {
		s.close()
	}
}

// bulkHandler returns what takes the completions of a bulk lane.
func (c *Conn) bulkHandler(r *rail, send *bulkSend) func(*ibverbs.WC) {
	return func(wc *ibverbs.WC) {
		if wc.WRID&wridRecv != 0 {
			c.recv.complete(r, wc)
		} else {
			send.complete(wc)
		}
	}
}
