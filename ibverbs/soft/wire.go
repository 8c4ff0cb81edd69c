package soft

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/gdrpc/gdrpc/ibverbs"
	"github.com/gdrpc/gdrpc/internal/leak"
)

var (
	errWireClosed = fmt.Errorf("ibverbs/soft: wire: %w", ibverbs.ErrClosed)
	errStalled    = errors.New("ibverbs/soft: wire: the peer took nothing for the stall timeout while a queue pair had to stop")
)

// Wire is a byte stream that stands in for the network between the queue pairs
// attached to it and those attached to its other end. All methods may be called
// from any goroutine.
type Wire struct {
	rw     io.ReadWriteCloser
	track  *leak.Object
	done   chan struct{} // closed when the stream is closed and all QPs are in ERR
	wg     sync.WaitGroup
	pumpFn func()     // w.pump, made once: starting it allocates nothing
	direct *tryWriter // writes without blocking; nil if rw cannot

	// mu is a leaf: no other lock is taken under it.
	mu      sync.Mutex
	err     error
	ports   map[uint32]*port // by number
	live    int              // ports whose queue pair is not destroyed
	reading bool
	pumping bool
	ready   []*port // with sends to write
	naks    []header

	bat batch // owned by the one who set pumping
	cur *port // whose messages bat holds, may be nil; as bat
	rd  reader

	intr interrupter
}

// port is the place of a queue pair on a wire. It outlives the queue pair, so
// that late messages for it are told from garbage.
type port struct {
	wire  *Wire
	num   uint32
	max   uint32        // bytes per message
	stall time.Duration // as in Config
	ready chan struct{} // closed in RTR and in ERR
	once  sync.Once     // closes ready

	qp     *QP    // nil once destroyed; guarded by wire.mu
	dest   uint32 // valid if known; guarded by wire.mu
	known  bool   // guarded by wire.mu
	queued bool   // in wire.ready; guarded by wire.mu
	deaf   bool   // a message was refused; owned by the wire's reader
}

// NewWire makes a wire of a stream, which it owns from now on, deadlines
// included. The stream's Close must unblock Read and Write. A *net.TCPConn or
// *net.UnixConn is written to by vectored writes, and small messages by the
// poster itself. The wire's user must call Close.
func NewWire(rw io.ReadWriteCloser) *Wire {
	w := &Wire{
		rw:    rw,
		track: leak.Track("soft.Wire"),
		done:  make(chan struct{}),
		ports: make(map[uint32]*port),
	}
	w.pumpFn = w.pump
	w.direct = newTryWriter(rw)
	w.rd.src = rw
	w.rd.intr = &w.intr
	w.intr.conn, _ = rw.(readDeadliner)
	return w
}

// Pipe returns the two ends of a wire in memory.
func Pipe() (*Wire, *Wire) {
	a, b := net.Pipe()
	return NewWire(a), NewWire(b)
}

// Attach puts a queue pair of this package in state INIT on the wire, for good.
// Any number of queue pairs may share a wire. A wrapper of a queue pair that
// tells by a method Unwrap() ibverbs.QP what it wraps is as good.
func (w *Wire) Attach(qp ibverbs.QP) error {
	q := unwrap(qp)
	if q == nil {
		return &ibverbs.Error{Op: "attach", Subject: "wire", Err: fmt.Errorf("%w: a queue pair of another provider", ibverbs.ErrInvalid)}
	}
	cfg := &q.pd.ctx.dev.cfg
	p := &port{wire: w, num: q.num, qp: q, max: cfg.MaxMsgSz, stall: cfg.StallTimeout, ready: make(chan struct{})}
	w.mu.Lock()
	err := w.err
	if err == nil && w.ports[q.num] != nil {
		err = fmt.Errorf("%w: the number is on the wire already", ibverbs.ErrInvalid)
	}
	if err == nil {
		w.ports[q.num] = p
		w.live++
	}
	w.mu.Unlock()
	if err != nil {
		return q.refuse("attach", err, "")
	}
	if err := q.attach(p); err != nil {
		w.mu.Lock()
		delete(w.ports, q.num)
		w.live--
		w.mu.Unlock()
		return err
	}
	return nil
}

// unwrap returns the queue pair of this package that qp is or wraps, or nil.
func unwrap(qp ibverbs.QP) *QP {
	for {
		switch q := qp.(type) {
		case *QP:
			return q
		case interface{ Unwrap() ibverbs.QP }:
			qp = q.Unwrap()
		default:
			return nil
		}
	}
}

// attach gives q its port.
func (q *QP) attach(p *port) error {
	q.mu.Lock()
	defer q.unlock()
	if q.state != ibverbs.QPInit || q.port != nil {
		return q.invalid("attach", "state %v, want %v without a wire", q.state, ibverbs.QPInit)
	}
	q.port = p
	return nil
}

// connect notes that p's queue pair has reached RTR and starts the reader.
func (w *Wire) connect(p *port, dest uint32) {
	w.mu.Lock()
	p.dest, p.known = dest, true
	start := !w.reading && w.err == nil
	if start {
		w.reading = true
		w.wg.Add(1)
	}
	w.mu.Unlock()
	if start {
		go w.readLoop()
	}
	p.open()
}

// open lets the reader deliver to the queue pair.
func (p *port) open() { p.once.Do(func() { close(p.ready) }) }

// detach forgets a destroyed queue pair.
func (w *Wire) detach(p *port) {
	w.mu.Lock()
	p.qp = nil
	w.live--
	w.mu.Unlock()
}

// Close closes the stream, moves every attached queue pair to ERR and returns
// when the wire's goroutines have ended. Sends that have completed may be lost
// with the stream, as the stream's own Close has it.
func (w *Wire) Close() error {
	w.fail(errWireClosed, ibverbs.WCWRFlushErr)
	<-w.done
	w.wg.Wait()
	w.track.Done()
	return nil
}

// Done is closed when the wire has died or been closed.
func (w *Wire) Done() <-chan struct{} { return w.done }

// Err tells why the wire died: it wraps io.EOF if the peer closed the stream,
// ErrClosed after Close, else the stream's error or what was wrong with the
// bytes read. It is nil while the wire lives.
func (w *Wire) Err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// fail ends the wire. The oldest outstanding send of each queue pair completes
// with status. Only the first call counts.
func (w *Wire) fail(err error, status ibverbs.WCStatus) {
	w.mu.Lock()
	if w.err != nil {
		w.mu.Unlock()
		return
	}
	w.err = err
	qps := make([]*QP, 0, len(w.ports))
	for _, p := range w.ports {
		if p.qp != nil {
			qps = append(qps, p.qp)
		}
	}
	w.mu.Unlock()
	for _, q := range qps {
		q.fail(cause{status: status})
	}
	_ = w.rw.Close() // its error says nothing that err does not
	close(w.done)
}

// stalled ends the wire because a write or a read does not come back.
func (w *Wire) stalled() { w.fail(errStalled, ibverbs.WCRetryExcErr) }
