package conn

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"

	"github.com/gdrpc/gdrpc/gpubuf/host"
	"github.com/gdrpc/gdrpc/internal/ipc"
)

// boardSlots is how many offers of a Domain can lie in shared memory at a time;
// others go another way. Only what is used takes pages.
const boardSlots = 1 << 16

// maxInvites bounds the connections of a Domain that wait for their Unix socket.
const maxInvites = 1024

// What all peers of a Domain together can have this process map: an eighth of
// the addresses that a process has, and a quarter of the mappings that Linux
// lets it have by default (vm.max_map_count), without which the Go runtime ends
// the process. One Conn's share is maxRegions and maxMapped.
const (
	maxDomainRegions = 1 << 14
	maxDomainMapped  = 1 << 44
)

// ipcDomain is what the Conns of a Domain share to move attachments by memory
// that two processes share: the Unix socket to which clients come, and the
// board that tells which offers stand.
//
// The board is the Domain's and not a Conn's, since grpc may replay a message,
// and the places that it names, on another Conn.
type ipcDomain struct {
	mu       sync.Mutex
	listener *ipc.Listener        // made by the first invitation; guarded by mu
	invites  map[[16]byte]*Invite // guarded by mu
	board    *board               // made by the first place; guarded by mu
	closed   bool                 // guarded by mu

	noBoard sync.Once // tells the log that there is none

	foreign foreignMemory
}

// foreignMemory counts the memory of other processes that a Domain has mapped.
type foreignMemory struct {
	mu      sync.Mutex
	regions int   // guarded by mu
	bytes   int64 // guarded by mu
}

// reserve makes room for one more mapping, until release.
func (f *foreignMemory) reserve(size int64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.regions >= maxDomainRegions:
		return fmt.Errorf("the peers of this process have it map %d regions already, which is all that a Domain maps", f.regions)
	case size > maxDomainMapped-f.bytes:
		return fmt.Errorf("the peers of this process have it map %d bytes already; a Domain maps %d", f.bytes, int64(maxDomainMapped))
	}
	f.regions++
	f.bytes += size
	return nil
}

func (f *foreignMemory) release(size int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.regions--
	f.bytes -= size
}

// Invite waits for the Unix socket of one connection, on the server's side. It
// goes to New in Setup.IPC; until then whoever has it must Close it.
type Invite struct {
	d    *ipcDomain
	name string
	key  ipc.Key

	mu     sync.Mutex
	sock   *ipc.Socket       // that came before the Conn was made; guarded by mu
	taker  func(*ipc.Socket) // set by the Conn; guarded by mu
	closed bool              // guarded by mu
}

// IPC names the server's Unix socket and what a client proves itself with
// there. Only the two sides of one handshake know it.
type IPC struct {
	Socket string // abstract name, without its leading zero byte
	ID     [16]byte
	Secret [32]byte
}

// SharesMemory reports whether the Domain lets attachments move by memory that
// two processes of this host share.
func (d *Domain) SharesMemory() bool { return !d.cfg.NoIPC }

// Invite prepares for a client of the same host that will come to the Domain's
// Unix socket.
func (d *Domain) Invite() (*Invite, error) {
	x := &d.ipc
	x.mu.Lock()
	defer x.mu.Unlock()
	switch {
	case d.cfg.NoIPC:
		return nil, errNoIPC
	case x.closed:
		return nil, fmt.Errorf("conn: domain: %w", net.ErrClosed)
	case len(x.invites) >= maxInvites:
		return nil, fmt.Errorf("conn: %d connections wait for their Unix sockets already", len(x.invites))
	}
	if x.listener == nil {
		l, err := ipc.Listen(x.find, x.take)
		if err != nil {
			return nil, fmt.Errorf("conn: listening on a Unix socket: %w", err)
		}
		x.listener, x.invites = l, make(map[[16]byte]*Invite)
	}
	v := &Invite{d: x, name: x.listener.Name(), key: ipc.NewKey()}
	x.invites[v.key.ID] = v
	return v, nil
}

// IPC returns what the client must know.
func (v *Invite) IPC() IPC { return IPC{Socket: v.name, ID: v.key.ID, Secret: v.key.Secret} }

// find returns the key of an invitation that stands.
func (x *ipcDomain) find(id [16]byte) (ipc.Key, bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if v := x.invites[id]; v != nil {
		return v.key, true
	}
	return ipc.Key{}, false
}

// take hands a proved socket to its Conn, once.
func (x *ipcDomain) take(k ipc.Key, s *ipc.Socket) {
	x.mu.Lock()
	v := x.invites[k.ID]
	delete(x.invites, k.ID)
	x.mu.Unlock()
	if v == nil {
		s.Close()
		return
	}
	v.deliver(s)
}

func (v *Invite) deliver(s *ipc.Socket) {
	v.mu.Lock()
	defer v.mu.Unlock()
	switch {
	case v.closed:
		s.Close()
	case v.taker != nil:
		v.taker(s)
	default:
		v.sock = s
	}
}

// bind has f called once with the socket when it comes, which may be at once. f
// owns the socket and must not block.
func (v *Invite) bind(f func(*ipc.Socket)) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.sock != nil {
		f(v.sock)
		v.sock = nil
		return
	}
	v.taker = f
}

// Close ends the invitation. A nil Invite is none.
func (v *Invite) Close() {
	if v == nil {
		return
	}
	v.d.mu.Lock()
	delete(v.d.invites, v.key.ID)
	v.d.mu.Unlock()
	v.mu.Lock()
	defer v.mu.Unlock()
	v.closed = true
	if v.sock != nil {
		v.sock.Close()
		v.sock = nil
	}
}

// standing returns the board, made at first need.
func (x *ipcDomain) standing() (*board, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.closed {
		return nil, net.ErrClosed
	}
	var err error
	if x.board == nil {
		x.board, err = newBoard() // tried again next time: descriptors come back
	}
	return x.board, err
}

// close ends the listener and frees the board. No Conn is left.
func (x *ipcDomain) close() error {
	x.mu.Lock()
	l, b := x.listener, x.board
	x.closed, x.listener, x.board = true, nil, nil
	x.mu.Unlock()
	var errs []error
	if l != nil {
		errs = append(errs, l.Close())
	}
	if b != nil {
		errs = append(errs, b.close())
	}
	return errors.Join(errs...)
}

// board tells importers which offers stand: an offer has a word of shared
// memory, which holds the offer's generation until the offer is withdrawn.
type board struct {
	words *host.Board

	mu     sync.Mutex
	free   []uint32 // given back; guarded by mu
	next   uint32   // never used so far, and all after it; guarded by mu
	last   uint64   // generation; none is ever used twice; guarded by mu
	closed bool     // guarded by mu
}

func newBoard() (*board, error) {
	w, err := host.NewBoard(boardSlots)
	if err != nil {
		return nil, err
	}
	// A random start keeps a generation of one board from standing on
	// another's by chance.
	return &board{words: w, last: rand.Uint64() >> 1}, nil
}

// enter has a new offer stand; false if there is no room.
func (b *board) enter() (slot uint32, generation uint64, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.closed:
		return 0, 0, false
	case len(b.free) > 0:
		slot = b.free[len(b.free)-1]
		b.free = b.free[:len(b.free)-1]
	case b.next < boardSlots:
		slot = b.next
		b.next++
	default:
		return 0, 0, false
	}
	b.last++
	b.words.Set(int(slot), b.last)
	return slot, b.last, true
}

// retract ends what enter began. When it returns, no importer that reads the
// source from now on takes what it reads for the offer's bytes.
func (b *board) retract(slot uint32) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return // close has retracted all
	}
	b.words.Set(int(slot), 0)
	b.free = append(b.free, slot)
}

// close retracts what still stands: importers may outlive the last Conn.
func (b *board) close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	for slot := range b.next {
		b.words.Set(int(slot), 0)
	}
	return b.words.Close()
}
