package conn

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gdrpc/gdrpc/ibverbs"
	"google.golang.org/grpc/mem"
)

// Conn is a net.Conn with lanes beside its byte stream.
type Conn struct {
	d      *Domain
	mode   Mode
	reason string
	client bool
	peer   Limits
	local  *Addr
	stream stream

	firstRead func([]byte) // called and cleared by the first Read; guarded by firstOnce
	firstOnce sync.Once
	preface   preface
	below     tlsState // of the TLS below; nil if there is none
	ahead     aheads

	bootstrap bootstrap // of ModeVerbs

	// The lanes; nil in ModePlain. Not written after New.
	control *control
	recv    *bulkRecv
	send    []*bulkSend // by rail, those of the handshake
	more    moreRails   // of ModeVerbs; its own guard
	rails   bool        // both sides open further bulk lanes
	outlive bool        // and go on without one that is lost
	eager   *eager      // nil if the peer has none
	lanes   []*Lane     // control, then the others
	offers  offers
	ipc     ipcLink
	sums    *sums // nil if checksums are not compared

	hello bool        // both sides said Hello, and the client that it has gdrpc's codec
	gdrpc atomic.Bool // the peer is gdrpc
	stats counters

	pinned pinnedKeeper

	ending endings
}

var _ net.Conn = (*Conn)(nil)

// Setup is what a handshake agreed on.
type Setup struct {
	Mode Mode
	// Stream is the bootstrap connection, positioned at the first byte of
	// the raw stream. Nil in ModeSoftShared and ModeVerbs.
	Stream net.Conn
	// StreamLane is the stream in ModeSoftShared, attached to the same
	// socket as the other lanes, and in ModeVerbs; Local and Remote are the
	// bootstrap connection's addresses.
	StreamLane    *Lane
	Local, Remote net.Addr
	// Socket is the bootstrap connection in every mode: in ModeVerbs New
	// takes it over, watches it and closes it last; in others it is asked for
	// the state of the TLS that it runs inside. Default: Stream.
	Socket net.Conn
	// Lost, if set, is called once if the Conn of ModeVerbs is reset while
	// its bootstrap connection stands. It must not block.
	Lost func(error)
	// PlaintextAttachments is set if both sides' Hellos permit them
	// (Config.AllowPlaintextAttachments).
	PlaintextAttachments bool
	// Checksums is set if both sides' Hellos ask for them (Config.Checksums).
	Checksums bool
	// Reason tells why no better path than this mode's was possible; it
	// appears in Stats and the log. Where lanes run over TCP and it is empty,
	// they say what this side knows.
	Reason string
	// Client is set on the side that dialled.
	Client bool
	// Gdrpc is set if the peer proved to be gdrpc by its Hello.
	Gdrpc bool
	// Codec is set if the client's Hello tells that all calls on the Conn have
	// gdrpc's codec.
	Codec bool
	// Peer is what the peer advertised, checked. Unused in ModePlain.
	Peer Limits
	// Control and Bulk are the other attached lanes: none in ModePlain, else
	// one control lane and from one to MaxBulkLanes bulk lanes, in the order
	// of their indices on the wire.
	Control *Lane
	Bulk    []*Lane
	// Invite, on the server's side, or IPC, on the client's, is set where the
	// two sides may share memory; else NoIPC tells why not.
	Invite *Invite
	IPC    *IPC
	NoIPC  string
	// Rails is set if both sides open further bulk lanes in ModeVerbs.
	Rails bool
	// LostRails is set if both sides go on without a further bulk lane that is
	// lost.
	LostRails bool
	// FirstRead, if set, is called once with the first bytes that the
	// stream delivers, before Read returns them. It must not block.
	FirstRead func(b []byte)
}

// MaxBulkLanes bounds the bulk lanes of one Setup.
const MaxBulkLanes = 16

// New makes a Conn. It takes over everything in s, and closes it if it fails.
func New(d *Domain, s Setup) (*Conn, error) {
	if err := s.check(); err != nil {
		return nil, errors.Join(err, s.close())
	}
	if err := d.acquire(); err != nil {
		return nil, errors.Join(err, s.close())
	}
	c, err := newConn(d, s)
	if err != nil {
		d.release()
		return nil, errors.Join(err, s.close())
	}
	c.log()
	return c, nil
}

// newConn makes a Conn and starts its lanes.
func newConn(d *Domain, s Setup) (*Conn, error) {
	var st stream
	if s.StreamLane != nil {
		st = newQPStream(s.StreamLane, s.Local, s.Remote, d.cfg.DrainTimeout, s.Peer.StreamBlock)
	} else {
		st = newNetStream(s.Stream)
	}
	c := &Conn{
		d: d, mode: s.Mode, client: s.Client, peer: s.Peer,
		stream: st, firstRead: s.FirstRead, hello: s.Gdrpc && s.Codec, rails: s.Rails && s.Mode == ModeVerbs,
		outlive: s.LostRails && s.Rails && s.Mode == ModeVerbs,
		offers:  offers{limit: d.cfg.MaxOffers},
		pinned:  pinnedKeeper{d: d},
		ending:  newEndings(),
	}
	if s.Mode == ModeVerbs {
		c.bootstrap, c.ending.lost = bootstrap{sock: s.Socket, watched: make(chan struct{})}, s.Lost
	}
	if c.ahead.may = s.Invite != nil || s.IPC != nil; !c.client {
		c.ahead.frames.skip = len(http2Preface)
	}
	c.local = &Addr{Addr: st.LocalAddr(), conn: c}
	c.gdrpc.Store(s.Gdrpc && (s.Client || s.Codec))
	c.secure(s)
	c.reason = cmp.Or(s.Reason, c.whyOverTCP())
	if s.Checksums && s.Mode != ModePlain {
		c.sums = newSums()
	}
	if s.Control != nil && s.Control.eager != nil {
		var err error
		if c.eager, err = newEager(c, s.Control.eager); err != nil {
			return nil, err
		}
	}
	if s.Mode == ModePlain {
		s.Invite.Close()
		s.Invite, s.IPC, s.NoIPC = nil, nil, cmp.Or(s.NoIPC, "there are no lanes")
	}
	c.ipc.start(c, s)
	if s.Mode != ModePlain {
		c.startLanes(s)
	}
	if qs, ok := st.(*qpStream); ok && s.Mode == ModeVerbs {
		qs.tell(c.streamLost)
		c.watchSocket()
	}
	return c, nil
}

func (s Setup) check() error {
	switch {
	case s.Mode < ModeVerbs || s.Mode > ModePlain:
		return fmt.Errorf("conn: Setup.Mode %v: %w", s.Mode, ibverbs.ErrNotSupported)
	case (s.Mode == ModeSoftShared || s.Mode == ModeVerbs) != (s.StreamLane != nil) || (s.Stream != nil) == (s.StreamLane != nil):
		return fmt.Errorf("conn: Setup: mode %v wants its stream in the other one of Stream and StreamLane", s.Mode)
	case s.Mode == ModeVerbs && s.Socket == nil:
		return errors.New("conn: Setup: mode verbs wants Socket, which tells when the peer is gone")
	case s.Mode == ModePlain:
		return nil
	case s.Control == nil || len(s.Bulk) < 1 || len(s.Bulk) > MaxBulkLanes:
		return fmt.Errorf("conn: Setup with %d bulk lanes: want 1 to %d, and a control lane", len(s.Bulk), MaxBulkLanes)
	}
	return s.Peer.Check()
}

// close gives up what New would have taken over.
func (s Setup) close() error {
	s.Invite.Close()
	var errs []error
	for _, l := range append([]*Lane{s.Control, s.StreamLane}, s.Bulk...) {
		if l != nil {
			errs = append(errs, l.Close())
		}
	}
	if s.Stream != nil {
		errs = append(errs, s.Stream.Close())
	}
	if s.Mode == ModeVerbs && s.Socket != nil {
		errs = append(errs, s.Socket.Close())
	}
	return errors.Join(errs...)
}

func (c *Conn) startLanes(s Setup) {
	c.lanes = append([]*Lane{s.Control}, s.Bulk...)
	c.control = newControl(c, s.Control, s.Peer)
	c.recv = newBulkRecv(c, s.Bulk)
	for _, l := range s.Bulk {
		c.send = append(c.send, newBulkSend(c, l))
	}
	if c.eager != nil {
		c.lanes = append(c.lanes, c.eager.l)
	}
	s.Control.arm(c.control.complete, c.controlLost)
	if c.eager != nil {
		c.eager.l.arm(c.eager.complete, c.bulkLost)
	}
	for i, l := range s.Bulk {
		l.arm(c.bulkHandler(c.recv.rails[i], c.send[i]), c.bulkLost)
	}
	if c.mode == ModeVerbs {
		c.more.start(c)
	}
	for _, l := range c.lanes {
		l.start()
	}
	for _, l := range s.Bulk {
		go l.watch(c.bulkLost)
	}
}

// handle acts on a frame from the peer. An error ends the Conn.
func (c *Conn) handle(f *frame) error {
	switch f.typ {
	case frameRequest, frameAbort:
		send := c.sender(f.rail)
		if send == nil {
			return fmt.Errorf("frame for bulk lane %d, which does not exist", f.rail)
		}
		if f.typ == frameAbort {
			send.abort(f.id)
			return nil
		}
		return send.request(f)
	case frameWant:
		return c.want(f.token)
	case frameReady:
		c.recv.ready(f.token, f.status)
	case frameRelease:
		if o := c.offers.get(f.token); o != nil {
			o.Withdraw()
		}
	case frameSumRequest:
		return c.sumWanted(f.token)
	case frameSum:
		c.recv.summed(f.token, f.status, f.id)
	case frameEagerCredit:
		if c.eager == nil {
			return errors.New("blocks of an eager lane that does not exist")
		}
		return c.eager.credit(f.id)
	case frameBulkOpen, frameBulkReady:
		if !c.rails {
			return errors.New("frame for a further bulk lane, which was not agreed on")
		}
		if f.typ == frameBulkOpen {
			return c.more.opened(f)
		}
		return c.more.answered(f)
	case frameBulkLost:
		if !c.outlive {
			return errors.New("a bulk lane is lost, which was not agreed on")
		}
		return c.more.told(f.rail)
	case frameConnEnd:
		c.peerEnded(errPeerEnded)
	}
	return nil
}

// sender returns the sending half of a bulk lane; nil if there is none.
func (c *Conn) sender(rail uint8) *bulkSend {
	switch {
	case int(rail) < len(c.send):
		return c.send[rail]
	case c.mode == ModeVerbs:
		return c.more.sender(rail)
	}
	return nil
}

// log writes the one line that a connection gets.
func (c *Conn) log() {
	args := []any{
		"local", c.local.String(), "remote", c.RemoteAddr().String(),
		"mode", c.mode.String(), "path", c.bestPath().String(),
	}
	level := slog.LevelInfo
	if c.reason != "" {
		args = append(args, "reason", c.reason)
	}
	if why := c.ipc.reason(); why != nil && c.mode != ModePlain {
		args = append(args, "no_ipc", why)
	}
	args = append(args, c.logTLS()...)
	if c.sums != nil {
		args = append(args, "checksums", "crc32c")
	} else if c.d.cfg.Checksums {
		args = append(args, "checksums", "off: the peer does not have them")
	}
	c.d.cfg.Logger.Log(logContext, level, "gdrpc: connection", args...)
}

// bestPath is the path of large attachments on this Conn.
func (c *Conn) bestPath() Path {
	switch c.mode {
	case ModePlain:
		return PathInline
	case ModeVerbs:
		return c.d.verbsPath(true)
	}
	return PathSoft
}

func noLanes(m Mode) string { return fmt.Sprintf("conn: no lanes in mode %v", m) }

// Offload says whether attachments may leave the byte stream: nil if so, else
// the reason why they must stay inside the message (no lanes, stream encrypted
// above the Conn, first bytes not seen yet, closed).
func (c *Conn) Offload() error {
	if c.control == nil {
		return fmt.Errorf("%s: %s", noLanes(c.mode), c.reason)
	}
	if err := c.ending.lanes.get(); err != nil {
		return err
	}
	return c.preface.check()
}

// Hello reports whether both sides know by Hello that the other one's calls have
// gdrpc's codec, so that none needs to say so.
func (c *Conn) Hello() bool { return c.hello }

// Gdrpc reports whether the peer is known to be gdrpc: by its Hello, or since
// MarkGdrpc. Of a client it must be known that its calls have the codec, too.
func (c *Conn) Gdrpc() bool { return c.gdrpc.Load() }

// MarkGdrpc records that the peer showed itself to be gdrpc in its metadata.
func (c *Conn) MarkGdrpc() { c.gdrpc.Store(true) }

// Read implements net.Conn.
func (c *Conn) Read(b []byte) (int, error) {
	n, err := c.stream.Read(b)
	c.observeRead(b[:n])
	return n, c.opError("read", err)
}

// ReadOnReady waits until the stream has bytes, then takes a buffer of size
// bytes from pool and reads into it. grpc calls it so that an idle connection
// holds no buffer. It returns io.EOF bare, and no buffer with an error.
func (c *Conn) ReadOnReady(size int, pool mem.BufferPool) (*[]byte, int, error) {
	b, n, err := c.stream.ReadOnReady(size, pool)
	if b != nil {
		c.observeRead((*b)[:n])
	}
	return b, n, c.opError("read", err)
}

func (c *Conn) observeRead(b []byte) {
	if len(b) == 0 {
		return
	}
	if c.firstRead != nil {
		c.firstOnce.Do(func() { c.firstRead(b) })
	}
	if !c.client && c.preface.observe(b) {
		c.notHTTP2()
	}
	if c.ahead.may {
		c.ahead.read(b)
	}
}

// Write implements net.Conn.
func (c *Conn) Write(b []byte) (int, error) {
	if c.client && c.preface.observe(b) {
		c.notHTTP2()
	}
	n, err := c.stream.Write(b)
	return n, c.opError("write", err)
}

// CloseWrite ends the outgoing byte stream; the peer reads io.EOF.
func (c *Conn) CloseWrite() error { return c.opError("close", c.stream.CloseWrite()) }

// LocalAddr returns an *Addr.
func (c *Conn) LocalAddr() net.Addr { return c.local }

// RemoteAddr returns the bootstrap connection's remote address.
func (c *Conn) RemoteAddr() net.Addr { return c.stream.RemoteAddr() }

// SetDeadline implements net.Conn.
func (c *Conn) SetDeadline(t time.Time) error { return c.opError("set", c.stream.SetDeadline(t)) }

// SetReadDeadline implements net.Conn.
func (c *Conn) SetReadDeadline(t time.Time) error {
	return c.opError("set", c.stream.SetReadDeadline(t))
}

// SetWriteDeadline implements net.Conn.
func (c *Conn) SetWriteDeadline(t time.Time) error {
	return c.opError("set", c.stream.SetWriteDeadline(t))
}
