package conn

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/ibverbs"
	"github.com/gdrpc/gdrpc/ibverbs/route"
)

// LaneKind is the job of a lane.
type LaneKind uint8

// The kinds of lanes, numbered as on the wire.
const (
	LaneControl LaneKind = 1 + iota
	LaneBulk
	LaneStream
	laneEager // comes with the control lane
)

// String returns "control", "bulk", "stream" or "eager".
func (k LaneKind) String() string {
	switch k {
	case LaneControl:
		return "control"
	case LaneBulk:
		return "bulk"
	case LaneStream:
		return "stream"
	case laneEager:
		return "eager"
	}
	return "unknown"
}

// laneShape says what a kind of lane is made of.
type laneShape struct {
	sends, recvs int // queue depths
	block        int // bytes of one block
	sendBlocks   int // blocks that the lane has for its sends
	recvBlocks   int // receives posted from the start
}

func (k LaneKind) shape() laneShape {
	switch k {
	case LaneControl:
		return laneShape{sends: controlSends, recvs: controlDepth, block: frameSize, sendBlocks: controlSends, recvBlocks: controlDepth}
	case LaneStream:
		return laneShape{sends: streamSends, recvs: streamDepth, block: streamBlock, sendBlocks: streamBlocks, recvBlocks: streamDepth}
	case laneEager:
		return laneShape{sends: eagerDepth, recvs: eagerDepth, block: eagerBlock, recvBlocks: eagerDepth}
	}
	return laneShape{sends: bulkDepth, recvs: bulkDepth}
}

// closeBound is how long closing a lane waits for its flushed completions.
const closeBound = time.Second

// QPInfo is what one side must know of the other's queue pair to connect.
type QPInfo struct {
	QPNum uint32 // 24 bits
	PSN   uint32 // first packet sequence number, 24 bits

	// The same of the eager lane that comes with a control lane; EagerQPNum
	// is 0 where there is none.
	EagerQPNum uint32
	EagerPSN   uint32
}

// Lane is one queue pair of a Conn with its completion queue, its blocks of
// host memory and its poller. Until New takes it, whoever made it
// must Close it.
type Lane struct {
	d     *Domain
	nic   *nic
	route *route.Route // of a lane on a NIC; nil on a wire
	kind  LaneKind
	shape laneShape
	psn   uint32

	channel ibverbs.CompChannel
	cq      ibverbs.CQ
	qp      ibverbs.QP
	blocks  *gpubuf.Slice // send blocks, then receive blocks; nil for bulk
	wire    *sharedWire   // set by Attach; nil before, and on a NIC
	early   *early        // of a lane on a NIC; else nil
	eager   *Lane         // of a control lane; nil if the peer has none

	posts   posts
	posted  atomic.Int64 // work requests that have not completed yet
	drained chan struct{}
	dead    chan struct{} // closed when no waiter polls any more
	poller  poller
	waits   *waits // of a lane that those who wait poll; else nil

	cause    atomic.Pointer[error] // why it was aborted
	closing  atomic.Bool
	closed   chan struct{} // closed when close has returned
	closeErr error         // written before closed is closed
}

// posts are the work requests that are being posted: an interface's arguments
// would be allocated each time.
type posts struct {
	sendLock sync.Mutex
	send     [1]ibverbs.SendWR // guarded by sendLock
	sendSGE  [2]ibverbs.SGE    // guarded by sendLock
	recvLock sync.Mutex
	recv     [1]ibverbs.RecvWR // guarded by recvLock
	recvSGE  [1]ibverbs.SGE    // guarded by recvLock
}

// Work request ids of the lanes with blocks: the index of the block, sends
// first. Those of the bulk lane are in bulk_recv.go and bulk_send.go. Receives
// carry this bit, since only the id tells what an error completion was.
const wridRecv = 1 << 63

// NewLane makes a lane whose receives are posted, not yet connected. A control
// lane brings an eager lane with it, on the same socket.
func (d *Domain) NewLane(kind LaneKind) (*Lane, error) {
	return d.newLaneOn(d.soft, nil, kind)
}

// newLaneOn makes a lane on a NIC by a route, or, without one, for a wire.
func (d *Domain) newLaneOn(n *nic, r *route.Route, kind LaneKind) (*Lane, error) {
	l, err := d.newLane(n, r, kind)
	if err != nil || kind != LaneControl || n.attr.MaxSGE < 2 {
		return l, err
	}
	if l.eager, err = d.newLane(n, r, laneEager); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// newLane gives up registrations that are kept for later where the limit of locked
// memory is met, which queue pairs and completion queues count against too.
func (d *Domain) newLane(n *nic, r *route.Route, kind LaneKind) (*Lane, error) {
	for {
		l, err := d.makeLane(n, r, kind)
		if err == nil || !errors.Is(err, ibverbs.ErrOutOfMemory) || !n.regions.cache.evict() {
			return l, err
		}
	}
}

func (d *Domain) makeLane(n *nic, r *route.Route, kind LaneKind) (*Lane, error) {
	if err := d.acquire(); err != nil {
		return nil, err
	}
	l := &Lane{
		d: d, nic: n, route: r, kind: kind, shape: kind.shape(), psn: randomPSN(),
		drained: make(chan struct{}, 1), dead: make(chan struct{}), closed: make(chan struct{}),
	}
	if r != nil && kind == LaneStream {
		l.waits = newWaits(d.pollTime(n))
	}
	if err := l.open(); err != nil {
		l.Close()
		return nil, fmt.Errorf("conn: making the %v lane: %w", kind, err)
	}
	return l, nil
}

func randomPSN() uint32 {
	var b [4]byte
	rand.Read(b[:]) // never fails (crypto/rand.Read)
	return binary.BigEndian.Uint32(b[:]) & (1<<24 - 1)
}

func (l *Lane) open() (err error) {
	s := l.shape
	if l.route != nil {
		s.sends, s.recvs = s.sends+readyWRs, s.recvs+readyWRs
	}
	if l.channel, err = l.nic.ctx.CreateCompChannel(); err != nil {
		return err
	}
	if l.cq, err = l.nic.ctx.CreateCQ(s.sends+s.recvs, l.channel); err != nil {
		return err
	}
	l.qp, err = l.nic.pd.CreateQP(ibverbs.QPInitAttr{SendCQ: l.cq, RecvCQ: l.cq, MaxSendWR: s.sends, MaxRecvWR: s.recvs})
	if err != nil {
		return err
	}
	if err = toInit(l.qp, l.route); err != nil {
		return err
	}
	if l.route != nil {
		if err = l.beginEarly(); err != nil {
			return err
		}
	}
	if s.block == 0 {
		return nil
	}
	if l.blocks, err = l.d.hostBlock(s.block * (s.sendBlocks + s.recvBlocks)); err != nil {
		return err
	}
	for i := range s.recvBlocks {
		if err = l.postRecvBlock(i); err != nil {
			return err
		}
	}
	return nil
}

// QPInfo returns what the peer must be told.
func (l *Lane) QPInfo() QPInfo {
	q := QPInfo{QPNum: l.qp.Num(), PSN: l.psn}
	if l.eager != nil {
		q.EagerQPNum, q.EagerPSN = l.eager.qp.Num(), l.eager.psn
	}
	return q
}

// sendBlock and recvBlock return block i of the lane's own memory.
func (l *Lane) sendBlock(i int) []byte { return l.block(i) }
func (l *Lane) recvBlock(i int) []byte { return l.block(l.shape.sendBlocks + i) }

func (l *Lane) block(i int) []byte {
	return l.blocks.HostBytes()[i*l.shape.block:][:l.shape.block]
}

// postRecvBlock posts receive block i.
func (l *Lane) postRecvBlock(i int) error {
	sge, err := l.nic.regions.sge(l.blocks, int64((l.shape.sendBlocks+i)*l.shape.block), uint32(l.shape.block))
	if err != nil {
		return err
	}
	return l.postRecv(wridRecv|uint64(i), sge)
}

// postSendBlock sends n bytes of send block i.
func (l *Lane) postSendBlock(i, n int, op ibverbs.WROpcode, imm uint32, flags ibverbs.SendFlags) error {
	sge, err := l.nic.regions.sge(l.blocks, int64(i*l.shape.block), uint32(n))
	if err != nil {
		return err
	}
	return l.postSendList(uint64(i), [2]ibverbs.SGE{sge}, op, imm, flags)
}

// postRecv posts one receive into sge.
func (l *Lane) postRecv(wrid uint64, sge ibverbs.SGE) error {
	p := &l.posts
	p.recvLock.Lock()
	defer p.recvLock.Unlock()
	p.recvSGE[0] = sge
	p.recv[0] = ibverbs.RecvWR{WRID: wrid, SGList: p.recvSGE[:]}
	l.posted.Add(1)
	_, err := l.qp.PostRecv(p.recv[:])
	if err != nil {
		l.posted.Add(-1)
	}
	return err
}

// The flags of a send. Whoever waits for messages may have armed its lane for
// solicited ones alone, so a quiet send must have a loud one behind it that waits
// for nothing. The completion of that tells of both.
const (
	sendLoud  = ibverbs.SendSignaled | ibverbs.SendSolicited
	sendQuiet = ibverbs.SendFlags(0)
)

// postSend posts one loud send of sge; one of length 0 sends nothing but the
// immediate.
func (l *Lane) postSend(wrid uint64, sge ibverbs.SGE, op ibverbs.WROpcode, imm uint32) error {
	return l.postSendList(wrid, [2]ibverbs.SGE{sge}, op, imm, sendLoud)
}

// postSendList posts one send of two pieces, each of which may be empty.
func (l *Lane) postSendList(wrid uint64, pieces [2]ibverbs.SGE, op ibverbs.WROpcode, imm uint32, flags ibverbs.SendFlags) error {
	p := &l.posts
	p.sendLock.Lock()
	defer p.sendLock.Unlock()
	sges := p.sendSGE[:0]
	for _, e := range pieces {
		if e.Length > 0 {
			sges = append(sges, e)
		}
	}
	p.send[0] = ibverbs.SendWR{WRID: wrid, SGList: sges, Opcode: op, Flags: flags, Imm: imm}
	l.posted.Add(1)
	_, err := l.qp.PostSend(p.send[:])
	if err != nil {
		l.posted.Add(-1)
	}
	return err
}

// watch calls lost when the lane's wire dies. A queue pair on which nothing is
// posted has no completion that would tell. On a NIC the bootstrap connection
// tells.
func (l *Lane) watch(lost func(error)) {
	if l.wire == nil {
		return
	}
	select {
	case <-l.wire.Done():
		if !l.closing.Load() {
			lost(l.wire.Err())
		}
	case <-l.closed:
	}
}

// failure is the error of a completion that failed, with what the wire says of
// it.
func (l *Lane) failure(wc *ibverbs.WC) error {
	err := &ibverbs.WCError{Status: wc.Status, VendorErr: wc.VendorErr, QPNum: wc.QPNum}
	if why := l.cause.Load(); why != nil {
		return fmt.Errorf("%w (%w)", *why, err)
	}
	if l.wire == nil || l.wire.Err() == nil {
		return err
	}
	return fmt.Errorf("%w: %w", err, l.wire.Err())
}

// Close destroys the lane and closes its socket. Outstanding work requests
// complete as flushed first; the wait for them is bounded, and none touches
// memory once Close has returned. It is idempotent and must not be called from
// the lane's handler.
func (l *Lane) Close() error {
	if !l.closing.Swap(true) {
		l.closeErr = l.close()
		close(l.closed)
	}
	<-l.closed
	return l.closeErr
}

func (l *Lane) close() error {
	var errs []error
	if l.eager != nil {
		errs = append(errs, l.eager.Close())
	}
	var unflushed error
	if l.qp != nil {
		unflushed = l.qp.Modify(errState, ibverbs.QPAttrState)
	}
	if l.wire != nil {
		l.wire.release()
	}
	if l.early != nil {
		l.early.end()
	}
	l.reap()
	l.awaitDrained()
	if l.qp != nil {
		errs = append(errs, l.destroyQP(unflushed))
	}
	if l.channel != nil {
		errs = append(errs, l.channel.Close())
	}
	l.stopPolling()
	if l.cq != nil {
		errs = append(errs, l.cq.Destroy())
	}
	if l.blocks != nil {
		l.blocks.Free()
	}
	if l.early != nil {
		l.early.block.Free()
	}
	l.d.release()
	return errors.Join(errs...)
}

// destroyQP destroys the queue pair. Once it has, it does not matter that it could
// not be flushed before, as those of a device that was removed cannot.
func (l *Lane) destroyQP(unflushed error) error {
	if l.route != nil {
		l.nic.remove(l)
	}
	if err := l.qp.Destroy(); err != nil {
		return errors.Join(unflushed, err)
	}
	return nil
}

// awaitDrained waits for the handler to take the last completion. A
// lane that never started has nobody who polls, and nobody who would miss it.
func (l *Lane) awaitDrained() {
	if !l.poller.started.Load() {
		return
	}
	if l.waits != nil {
		l.pollDrained()
		return
	}
	bound := time.NewTimer(closeBound)
	defer bound.Stop()
	for l.posted.Load() > 0 {
		select {
		case <-l.drained:
		case <-l.dead:
			return
		case <-bound.C:
			return
		}
	}
}
