package conn

import (
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// modelLink is one pair of Conns on sockets in memory.
type modelLink struct {
	r       *modelRun
	plan    modelLinkPlan
	ends    [2]*Conn // client, server
	sockets []*modelSocket
}

// calm says that nothing happens to the link that its traffic must not survive.
func (l *modelLink) calm() bool {
	return l.plan.upset.kind == upsetNone || l.plan.upset.kind == upsetRails
}

// newModelLink makes the sockets, lanes and Conns of a link and sends the
// preface.
func newModelLink(r *modelRun, plan modelLinkPlan) (*modelLink, error) {
	l := &modelLink{r: r, plan: plan}
	if r.plan.verbs {
		return l, l.openVerbs()
	}
	kinds := []LaneKind{LaneStream, LaneControl}
	for range plan.bulks {
		kinds = append(kinds, LaneBulk)
	}
	var lanes [2][]*Lane
	for side, s := range r.sides {
		for _, kind := range kinds {
			var lane *Lane
			if kind != LaneStream || plan.shared { // else the stream is a socket's
				var err error
				if lane, err = s.d.NewLane(kind); err != nil {
					return nil, err
				}
			}
			lanes[side] = append(lanes[side], lane)
		}
	}
	if err := l.attach(lanes); err != nil {
		return nil, err
	}
	for side, s := range r.sides {
		c, err := New(s.d, l.setup(side, lanes[side]))
		if err != nil {
			return nil, err
		}
		l.ends[side] = c
	}
	return l, l.greet()
}

// attach joins the lanes: all on one socket, or each on its own. Control lanes
// bring eager ones, unless the plan says that the other side has none.
func (l *modelLink) attach(lanes [2][]*Lane) error {
	groups := l.groups(len(lanes[0]))
	for i := range groups {
		l.sockets = append(l.sockets, l.r.net.dial(l.cutOf(i, len(groups))))
	}
	for side := range 2 {
		peers := infosOf(lanes[1-side], l.plan.eager)
		for i, group := range groups {
			if lanes[side][group[0]] == nil {
				continue // the stream on its socket
			}
			from, to := group[0], group[0]+len(group)
			if err := AttachShared(l.sockets[i].ends[side], lanes[side][from:to], peers[from:to]); err != nil {
				return err
			}
		}
	}
	return nil
}

func infosOf(lanes []*Lane, eager bool) (infos []QPInfo) {
	for _, l := range lanes {
		var q QPInfo
		if l != nil {
			q = l.QPInfo()
		}
		if !eager {
			q.EagerQPNum, q.EagerPSN = 0, 0
		}
		infos = append(infos, q)
	}
	return infos
}

// groups returns the indices of the lanes that share a socket, in order.
func (l *modelLink) groups(lanes int) (groups [][]int) {
	for i := range lanes {
		if i == 0 || !l.plan.shared {
			groups = append(groups, nil)
		}
		last := &groups[len(groups)-1]
		*last = append(*last, i)
	}
	return groups
}

// setupBytes is more than the preface takes on a socket.
const setupBytes = 1 << 10

// cutOf returns after how many bytes socket i is cut, 0 for never.
func (l *modelLink) cutOf(i, sockets int) int64 {
	if u := l.plan.upset; u.kind == upsetCut && u.cut > 0 && u.lane%sockets == i {
		return setupBytes + u.cut
	}
	return 0
}

func (l *modelLink) setup(side int, lanes []*Lane) Setup {
	s := Setup{
		Mode: ModeSoftJoined, Client: side == 0, Gdrpc: true, Checksums: l.r.plan.cfg.Checksums, Peer: l.r.plan.limits,
		Control: lanes[1], Bulk: lanes[2:],
	}
	if l.plan.shared {
		s.Mode, s.StreamLane, s.Local, s.Remote = ModeSoftShared, lanes[0], pipeAddr{}, pipeAddr{}
		return s
	}
	s.Stream = l.sockets[0].ends[side]
	return s
}

// greet sends the preface.
func (l *modelLink) greet() error {
	sent := make(chan error, 1)
	go func() {
		_, err := l.ends[0].Write([]byte(http2Preface))
		sent <- err
	}()
	if _, err := io.ReadFull(l.ends[1], make([]byte, len(http2Preface))); err != nil {
		return err
	}
	return <-sent
}

// run has the link do what its plan says beside the moves: stream traffic, and
// what upsets it.
func (l *modelLink) run() {
	for side := range l.ends {
		l.r.tasks.Go(func() { l.write(side) })
		l.r.tasks.Go(func() { l.read(side) })
		l.r.tasks.Go(func() { l.storm(l.ends[side]) })
	}
	if l.plan.upset.kind != upsetNone {
		l.r.tasks.Go(l.disturb)
	}
}

func (l *modelLink) disturb() {
	u := l.plan.upset
	time.Sleep(u.at)
	switch u.kind {
	case upsetCut, upsetStall:
		if l.r.plan.verbs {
			l.upsetVerbs()
			return
		}
	}
	switch u.kind {
	case upsetCut:
		if u.cut == 0 {
			l.sockets[u.lane%len(l.sockets)].cut()
		}
	case upsetStall:
		l.sockets[u.lane%len(l.sockets)].fault.stall(u.long)
	case upsetRails:
		l.loseRails()
	case upsetClose:
		l.ends[u.side].Close()
	case upsetBoth:
		l.r.tasks.Go(func() { l.ends[0].Close() })
		l.ends[1].Close()
	}
}

// storm sends more frames than the control window holds.
func (l *modelLink) storm(c *Conn) {
	time.Sleep(l.r.plan.rng.duration(20 * time.Millisecond))
	for range l.plan.storm {
		c.Release(NewToken()) // which is harmless
	}
}

// streamLives says that the stream must work to the end: nothing happens to it,
// or only to another lane that can be lost.
func (l *modelLink) streamLives() bool {
	u := l.plan.upset
	if l.r.plan.verbs {
		return l.calm() || u.kind == upsetStall
	}
	return l.calm() || u.kind == upsetCut && !l.plan.shared && u.lane%len(l.sockets) >= 2
}

// write sends the side's half of the stream.
func (l *modelLink) write(side int) {
	b := modelPattern(uint64(side), int64(l.plan.trade))
	for len(b) > 0 {
		n := min(len(b), 1+l.r.plan.rng.n(20000))
		k, err := l.ends[side].Write(b[:n])
		if err != nil {
			l.streamFailed("write", err)
			return
		}
		b = b[k:]
		l.r.netDelay.wait()
	}
}

// read takes the other side's half.
func (l *modelLink) read(side int) {
	want := modelPattern(uint64(1-side), int64(l.plan.trade))
	b := make([]byte, 20000)
	for len(want) > 0 {
		n, err := l.ends[side].Read(b[:1+l.r.plan.rng.n(len(b))])
		if n > len(want) || string(b[:n]) != string(want[:n]) {
			l.r.ledger.fault("the stream brought other bytes than those sent")
			return
		}
		if want = want[n:]; err != nil {
			l.streamFailed("read", err)
			return
		}
	}
}

func (l *modelLink) streamFailed(op string, err error) {
	if l.streamLives() {
		l.r.ledger.fault("the stream must go on, but %s: %v", op, err)
	}
}

// orderly says that the link ends, if it does, by Close alone.
func (l *modelLink) orderly() bool {
	return l.plan.upset.kind == upsetClose || l.plan.upset.kind == upsetBoth
}

// check holds the Conns to their end: none failed that nothing happened to.
func (l *modelLink) check() {
	for side, c := range l.ends {
		err := c.ending.failed.get()
		if err != nil && (l.streamLives() || l.orderly()) {
			l.r.ledger.fault("%s: side %d failed: %v", l.plan, side, err)
		}
	}
}

// String tells what a link is.
func (p modelLinkPlan) String() string {
	return fmt.Sprintf("link (shared %v, eager %v, %d bulk lanes, upset %+v)", p.shared, p.eager, p.bulks, p.upset)
}

// close closes both ends and waits until everything is given back.
func (l *modelLink) close() error {
	var errs []error
	for _, c := range l.ends {
		if err := c.Close(); err != nil && !errors.Is(err, net.ErrClosed) && l.streamLives() {
			errs = append(errs, err)
		}
	}
	for side, c := range l.ends {
		select {
		case <-c.ending.done:
		case <-time.After(modelPatience):
			errs = append(errs, fmt.Errorf("side %d does not end", side))
			<-c.ending.done
		}
	}
	return errors.Join(errs...)
}
