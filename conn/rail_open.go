package conn

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gdrpc/gdrpc/ibverbs"
	"github.com/gdrpc/gdrpc/ibverbs/route"
)

// Further bulk lanes of mode verbs, one for each NIC that a landing's device
// wants and the connection has no lane on. Whoever wants one opens it: BulkOpen,
// the peer's BulkReady, and Ready each way on the queue pairs. Until then, and
// for a while if that fails, landings use the lanes that there are. rail_answer.go has
// the other side's part, rail_lost.go the lanes' end.
//
// Each side registers its sending half before its Ready is out, and requests on
// the lane once the peer's Ready is here, so that no request meets a lane that
// its owner does not know.

const (
	// railBound is how long opening a lane may take.
	railBound = 5 * time.Second
	// maxRails bounds the indices of bulk lanes, where the peer knows BulkLost;
	// earlier versions take MaxBulkLanes.
	maxRails = 64
)

// moreRails are the further bulk lanes of a Conn.
type moreRails struct {
	c      *Conn
	ctx    context.Context // ends with close
	cancel context.CancelFunc
	tasks  sync.WaitGroup // added to under mu while not closed

	first uint8 // index of the first lane that this side opens; never changes

	endless atomic.Bool // a lane of the peer's got no end, and the log has it

	// mu is taken after all others but offers.mu, control.mu and the Domain's.
	mu      sync.Mutex
	closed  bool                     // guarded by mu
	full    bool                     // no index is free for this side; guarded by mu
	asked   map[*nic]int             // lanes on that NIC, open or being opened; guarded by mu
	opening map[uint8]chan railReady // lanes whose BulkReady has not come; guarded by mu
	taken   map[uint8]*further       // by index; guarded by mu
	lanes   []*Lane                  // guarded by mu
}

// further is one further lane, or one that is being opened. moreRails.mu guards
// it.
type further struct {
	index uint8
	nic   *nic      // counted in asked; nil if not
	lane  *Lane     // nil before enter
	send  *bulkSend // nil before enter, and once the lane was given up
	rail  *rail     // nil before settle
	err   error     // why it is lost; nil if it is not
	told  bool      // the peer's BulkLost has come
	said  bool      // this side's is on its way
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
	m.asked = map[*nic]int{c.lanes[1].nic: 1}
	m.opening, m.taken = make(map[uint8]chan railReady), make(map[uint8]*further)
	m.first = 1
	if !c.client {
		m.first = 2
	}
}

// want opens a lane on n, once, for the offer that token names.
func (m *moreRails) want(n *nic, token Token) {
	m.mu.Lock()
	defer m.mu.Unlock()
	index := m.free()
	if m.asked[n] > 0 || m.closed || m.full || !m.c.d.rails.may(m.pair(n)) {
		return
	}
	if m.full = index >= m.most(); m.full {
		m.tasks.Go(func() {
			m.c.d.cfg.Logger.Warn("gdrpc: no bulk lane on further NICs: all numbers are in use", "remote", m.c.RemoteAddr().String(), "device", n.dev.Name(), "lane", index)
		})
		return
	}
	m.asked[n]++
	f, ready := &further{index: index, nic: n}, make(chan railReady, 1)
	m.taken[index], m.opening[index] = f, ready
	m.tasks.Go(func() { m.report(f, n, m.open(f, n, token, ready)) })
}

// most is the bound of indices.
func (m *moreRails) most() uint8 {
	if m.c.outlive {
		return maxRails
	}
	return MaxBulkLanes
}

// free returns the first index that this side may use. mu is held.
func (m *moreRails) free() uint8 {
	index := m.first
	for m.taken[index] != nil {
		index += 2
	}
	return index
}

// pair is what the Domain remembers failures of a lane on n by.
func (m *moreRails) pair(n *nic) railPair { return railPair{addrOf(m.c.RemoteAddr()), n} }

// failed notes that a lane on n failed, and returns how long its pair is not tried
// again. With the whole connection it is not the pair that has failed.
func (m *moreRails) failed(n *nic) time.Duration {
	c := m.c
	if m.ctx.Err() != nil || c.ending.closed.get() != nil || c.ending.peer.get() != nil {
		return 0
	}
	return c.d.rails.fail(m.pair(n))
}

// uncount notes that a lane is gone.
func (m *moreRails) uncount(f *further) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if f.nic != nil {
		m.asked[f.nic]--
		f.nic = nil
	}
}

// report logs what came of opening a lane.
func (m *moreRails) report(f *further, n *nic, err error) {
	log := m.c.d.cfg.Logger
	if err != nil && f.rail != nil {
		return // it was lost as soon as it stood: takeApart has all this
	}
	if err != nil {
		m.uncount(f)
		again := m.failed(n)
		log.Warn("gdrpc: no bulk lane on a further NIC", "remote", m.c.RemoteAddr().String(), "device", n.dev.Name(), "err", err, "tried_again_after", again)
		return
	}
	m.c.d.rails.stands(m.pair(n))
	log.Info("gdrpc: bulk lane on a further NIC", "remote", m.c.RemoteAddr().String(), "device", n.dev.Name(), "lane", f.index)
}

// open is the opener's part.
func (m *moreRails) open(f *further, n *nic, token Token, ready <-chan railReady) error {
	ctx, cancel := context.WithTimeout(m.ctx, railBound)
	defer cancel()
	v, err := m.make([]*nic{n}, nil)
	if err != nil {
		m.unasked(f)
		return err
	}
	port := railPort{end: v.Endpoint(), qp: v.QPs()[0]}
	m.c.control.send(frame{typ: frameBulkOpen, rail: f.index, port: port, token: token})
	r, err := m.ready(ctx, ready)
	if err != nil {
		v.Close()
		m.drop(v.lanes[0])
		if m.c.outlive {
			m.say(f)
		}
		return err
	}
	m.enter(f, v.lanes[0])
	err = v.Connect(r.port.end, []QPInfo{r.port.qp})
	if err == nil {
		err = v.Start()
	}
	if err == nil {
		err = v.SendReady(ctx)
	}
	if err == nil {
		err = v.AwaitReady(ctx)
	}
	return m.settle(f, err)
}

// unasked frees the index of a lane that the peer has not been told of.
func (m *moreRails) unasked(f *further) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.taken, f.index)
	delete(m.opening, f.index)
	m.full = false
}

// ready waits for BulkReady.
func (m *moreRails) ready(ctx context.Context, ready <-chan railReady) (r railReady, err error) {
	select {
	case r = <-ready:
	case <-ctx.Done():
		return r, fmt.Errorf("waiting for the peer's end: %w", context.Cause(ctx))
	}
	if r.status != bulkData {
		return r, errors.New("the peer has no lane for it")
	}
	return r, nil
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
	full := len(m.lanes) >= int(m.most()) // those that are being closed have no index any more
	if !full {
		m.lanes = append(m.lanes, l)
	}
	m.mu.Unlock()
	if full {
		return nil, errors.Join(fmt.Errorf("%d lanes are open, or are being closed", m.most()), l.Close())
	}
	return v, nil
}

// enter makes the sending half of a lane known.
func (m *moreRails) enter(f *further, l *Lane) {
	s := newBulkSend(m.c, l)
	m.mu.Lock()
	defer m.mu.Unlock()
	if f.nic == nil {
		f.nic = l.nic
		m.asked[l.nic]++
	}
	f.lane, f.send = l, s
	if f.err != nil { // the peer has given it up already
		l.early.note(l.early.lost, f.err)
	}
}

// settle has landings use a lane, and hands it its completions, or gives it up
// for a reason, which it returns.
func (m *moreRails) settle(f *further, err error) error {
	if err != nil {
		m.giveUp(f)
		return err
	}
	l := f.lane
	r := m.c.recv.addRail(f.index, l)
	l.arm(m.c.bulkHandler(r, f.send), func(err error) { m.c.laneLost(l, err) })
	l.start()
	m.mu.Lock()
	f.rail = r
	if err = f.err; err != nil && !m.closed { // lost meanwhile
		m.tasks.Go(func() { m.takeApart(f) })
	}
	m.mu.Unlock()
	m.c.recv.resume()
	return err
}

// sender returns the sending half of a lane; nil if there is none.
func (m *moreRails) sender(index uint8) *bulkSend {
	m.mu.Lock()
	defer m.mu.Unlock()
	if f := m.taken[index]; f != nil {
		return f.send
	}
	return nil
}

// answered takes the peer's BulkReady. An error is a rule broken.
func (m *moreRails) answered(f *frame) error {
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
	m.mu.Lock()
	var sends []*bulkSend
	for _, f := range m.taken { // the peer's BulkLost may still take one out
		if f.send != nil {
			sends = append(sends, f.send)
		}
	}
	m.mu.Unlock()
	for _, s := range sends {
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
