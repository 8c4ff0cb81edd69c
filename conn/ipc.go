package conn

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/gdrpc/gdrpc/gpubuf/host"
	"github.com/gdrpc/gdrpc/internal/ipc"
)

const (
	// ipcConnectBound is how long a Conn waits for its Unix socket.
	ipcConnectBound = 5 * time.Second
	// ipcPatience is how long a landing waits for memory that its descriptor
	// names and that is on its way on the Unix socket. If the socket ends or
	// cannot be had, it ends at once.
	ipcPatience = 5 * time.Second
)

var errNoIPC = errors.New("switched off here (Config.NoIPC, MaxPath or Require)")

// ipcLink is a Conn's share in the memory of the process at its other end: the
// Unix socket, the regions that the peer may read of this process's memory
// (exports), and those of the peer that this process may read (imports). The
// zero link of a Conn that has none says why.
//
// Lock order: mu is taken after Offer.mu and before no other lock of this
// package but boards'.
type ipcLink struct {
	c *Conn

	mu      sync.Mutex
	sock    *ipc.Socket   // nil before it stands, and where there is none; guarded by mu
	why     error         // why there is no ipc, or no more; guarded by mu
	changed chan struct{} // closed and replaced when something has come or ended; guarded by mu
	closing bool          // no goroutine is started any more; guarded by mu

	exports map[uint64]*ipcExport // by region id; guarded by mu
	shared  int64                 // their bytes; guarded by mu
	told    bool                  // the board was announced; guarded by mu
	short   bool                  // the log has it that descriptors are short; guarded by mu
	queue   []*ipc.Message        // to be sent; guarded by mu
	sending bool                  // a goroutine sends them; guarded by mu

	imports  map[uint64]*ipcImport // by the peer's region ids; guarded by mu
	board    *host.View            // the peer's; guarded by mu
	reading  int                   // landings that read an import or the board, and closings of imports; guarded by mu
	standing int                   // imports that have not ended; guarded by mu
	mapped   int64                 // their bytes; guarded by mu

	patience time.Duration // ipcPatience; less in tests

	invite *Invite            // on the server's side
	timer  *time.Timer        // ends the wait for the socket; guarded by mu
	cancel context.CancelFunc // ends the dial; nil on the server's side
	gone   chan struct{}      // closed when the peer reads none of the exports any more
	wg     sync.WaitGroup
}

// start begins to connect. Nothing waits for it but landings whose descriptors
// name shared memory.
func (k *ipcLink) start(c *Conn, s Setup) {
	k.c, k.changed, k.gone, k.patience = c, make(chan struct{}), make(chan struct{}), ipcPatience
	switch {
	case s.Invite != nil:
		k.invite = s.Invite
		k.timer = time.AfterFunc(ipcConnectBound, func() {
			k.lose(fmt.Errorf("the peer has not come to the Unix socket for %v", ipcConnectBound), true)
		})
		s.Invite.bind(k.connected)
	case s.IPC != nil:
		ctx, cancel := context.WithTimeout(context.Background(), ipcConnectBound)
		k.cancel = cancel
		k.wg.Add(1)
		go k.dial(ctx, *s.IPC)
	default:
		k.why = errors.New(cmp.Or(s.NoIPC, "the handshake has not agreed on it"))
		close(k.gone)
	}
}

func (k *ipcLink) dial(ctx context.Context, to IPC) {
	defer k.wg.Done()
	sock, err := ipc.Dial(ctx, to.Socket, ipc.Key{ID: to.ID, Secret: to.Secret})
	k.cancel()
	if err != nil {
		k.lose(err, true)
		return
	}
	k.connected(sock)
}

// connected takes the proved socket. It owns it.
func (k *ipcLink) connected(sock *ipc.Socket) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.why != nil || k.closing {
		sock.Close()
		return
	}
	if k.timer != nil {
		k.timer.Stop()
	}
	k.sock = sock
	k.notify()
	k.wg.Add(1)
	go k.read(sock)
	k.pump()
}

// notify wakes those who wait for something to change. mu is held.
func (k *ipcLink) notify() {
	close(k.changed)
	k.changed = make(chan struct{})
}

// read takes the peer's messages until the socket ends. It is the one goroutine
// that an idle link has.
func (k *ipcLink) read(sock *ipc.Socket) {
	defer k.wg.Done()
	for {
		m, err := sock.Receive()
		if err == nil {
			err = k.handle(m)
		}
		if err == nil {
			continue
		}
		ended := errors.Is(err, io.EOF)
		if ended {
			err = errors.New("the peer has closed the Unix socket")
		}
		k.lose(err, !ended)
		k.drainSocket(sock, ended)
		return
	}
}

// handle acts on one message. An error ends the link.
func (k *ipcLink) handle(m *ipc.Message) error {
	switch m.Type {
	case ipc.TypeBoard:
		return k.takeBoard(m)
	case ipc.TypeRegion:
		return k.takeRegion(m)
	case ipc.TypeEnd:
		return k.endImport(m.Region)
	default:
		return k.acknowledged(m.Region)
	}
}

// lose ends the link for good: landings go another way from now on. loud says
// that it is worth a line in the log.
func (k *ipcLink) lose(why error, loud bool) {
	k.mu.Lock()
	if k.why != nil {
		k.mu.Unlock()
		return
	}
	k.why = &ipcLostError{why}
	if k.timer != nil {
		k.timer.Stop()
	}
	unsent := k.queue
	k.queue = nil
	if k.sock == nil {
		close(k.gone)
	} else {
		k.sock.Interrupt() // the reader does the rest
	}
	k.dropImports()
	k.notify()
	k.mu.Unlock()
	k.invite.Close()
	for _, m := range unsent {
		closeFile(m)
	}
	if loud && k.c.ending.closed.get() == nil {
		k.c.d.cfg.Logger.Info("gdrpc: no shared memory with the peer; attachments go another way",
			"remote", k.c.RemoteAddr().String(), "reason", why)
	}
}

// ipcLostError is why a link that was agreed on did not come to stand, or has ended:
// another Conn may have one.
type ipcLostError struct{ cause error }

func (e *ipcLostError) Error() string { return e.cause.Error() }
func (e *ipcLostError) Unwrap() error { return e.cause }

// drainSocket closes the socket once this side reads none of the peer's memory,
// which is what its end tells the peer, and the peer none of this side's.
func (k *ipcLink) drainSocket(sock *ipc.Socket, ended bool) {
	k.awaitUnread()
	if !ended && k.mustHearEnd() {
		sock.AwaitEnd()
	}
	sock.Close()
	close(k.gone)
	k.dropExports(true)
}

// awaitUnread returns once no landing reads an import. Landings notice within
// milliseconds that the link has ended.
func (k *ipcLink) awaitUnread() {
	for {
		k.mu.Lock()
		busy, ch := k.reading > 0, k.changed
		k.mu.Unlock()
		if !busy {
			return
		}
		<-ch
	}
}

// close ends the link with the Conn, whose landings have ended, and waits for
// it. Only where the peer may have memory of a GPU open, the reader goes on until
// the peer's end of the socket is closed.
func (k *ipcLink) close() {
	k.mu.Lock()
	k.closing = true
	k.mu.Unlock()
	if k.cancel != nil {
		k.cancel()
	}
	k.lose(errors.New("the connection is closed"), false)
	k.dropExports(false)
	if !k.mustHearEnd() {
		k.wg.Wait()
	}
}

// reason says why attachments do not move by shared memory; nil if they can, or
// if that is not known yet.
func (k *ipcLink) reason() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.why
}

// AwaitIPC waits within ctx until it is known whether attachments can move by
// shared memory, and says why not.
func (c *Conn) AwaitIPC(ctx context.Context) error {
	k := &c.ipc
	for {
		k.mu.Lock()
		up, why, ch := k.sock != nil, k.why, k.changed
		k.mu.Unlock()
		if up || why != nil {
			return why
		}
		select {
		case <-ch:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func closeFile(m *ipc.Message) {
	if m.File != nil {
		m.File.Close()
	}
}
