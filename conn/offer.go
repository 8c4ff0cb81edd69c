package conn

import (
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gdrpc/gdrpc/gpubuf"
)

// Offer is the sender's promise to deliver one slice to the peers of the Conns
// that it is added to. It keeps a reference to the slice until it is drained;
// from then on src must not be touched.
type Offer struct {
	token Token
	src   *gpubuf.Slice  // own reference, freed when drained
	where *gpubuf.Region // that src lies in; may be named, but not registered, when src is freed
	size  int64
	flags OfferFlags
	event gpubuf.Event // after which the source can be read; nil if it can
	sum   sourceSum

	served atomic.Uint64 // bytes sent of it, of all its landings

	mu        sync.Mutex
	conns     []*Conn            // where it can be asked for; guarded by mu
	reading   map[*Conn]int      // chunks whose send or staging copy is not finished; guarded by mu
	withdrawn bool               // guarded by mu
	gone      bool               // drained is closed; guarded by mu
	asking    map[*Conn]struct{} // whose peers wait for the event; guarded by mu
	leased    bool               // ends with its last Conn; guarded by mu
	board     *board             // that place is on; nil if on none; guarded by mu
	place     Place              // guarded by mu
	timer     *time.Timer
	ended     chan struct{} // closed when withdrawn
	drained   chan struct{} // closed when withdrawn and not read any more
}

// NewOffer makes an offer of src under a fresh token and takes its own
// reference to src. If src has an event (gpubuf.Slice.After), its bytes are not
// read before the event is done. It fails if src is nil or freed.
func NewOffer(src *gpubuf.Slice) (*Offer, error) {
	ref, err := src.TryRef()
	if err != nil {
		return nil, err
	}
	o := &Offer{
		token: NewToken(), src: ref, size: ref.Len(), event: ref.Event(),
		ended: make(chan struct{}), drained: make(chan struct{}),
	}
	if _, known := o.readiness(); !known {
		o.flags |= OfferPending
	}
	if o.where = ref.Region(); o.where != nil && o.where.HostBytes() == nil {
		o.flags |= OfferStaged
	}
	return o, nil
}

// Token returns the name under which the peer asks for the offer.
func (o *Offer) Token() Token { return o.token }

// Size returns the number of bytes offered.
func (o *Offer) Size() int64 { return o.size }

// Flags returns what the receiver must know of the offer to land it.
func (o *Offer) Flags() OfferFlags { return o.flags }

// Lease has the offer withdraw itself after d, and as soon as no Conn has it
// any more. It suits offers that outlive the call that made them. While a lane
// moves it, the lease begins anew, unless the peer takes less than 1/128 of it
// in d, or has taken it twice already: however a peer behaves, the lease ends.
func (o *Offer) Lease(d time.Duration) {
	o.mu.Lock()
	o.leased = true
	orphan := len(o.conns) == 0
	if !o.withdrawn && o.timer == nil {
		var before uint64
		o.timer = time.AfterFunc(d, func() {
			served := o.served.Load()
			moved := served - before
			before = served
			if !o.renew(d, served, moved) {
				o.Withdraw()
			}
		})
	}
	o.mu.Unlock()
	if orphan {
		o.Withdraw()
	}
}

// leaseParts is the part of an offer that moves in one term of a lease that is
// renewed.
const leaseParts = 128

// renew has a lease begin anew if enough has moved in its last term.
func (o *Offer) renew(d time.Duration, served, moved uint64) bool {
	size := uint64(o.size)
	if moved == 0 || moved < size/leaseParts || served > 2*size {
		return false
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.withdrawn {
		return false
	}
	o.timer.Reset(d)
	return true
}

// Withdraw ends the offer on every Conn: later requests for it are refused,
// open ones are aborted, and bytes that a process of this host reads from now on
// are not taken for the offer's. It does not wait; Drained does.
func (o *Offer) Withdraw() {
	o.mu.Lock()
	if o.withdrawn {
		o.mu.Unlock()
		return
	}
	o.withdrawn = true
	o.retract()
	close(o.ended)
	conns := o.conns
	o.conns = nil
	if o.timer != nil {
		o.timer.Stop()
	}
	o.mu.Unlock()
	for _, c := range conns {
		c.offers.remove(o.token)
		c.lingerCheck()
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.reading) == 0 {
		o.drain()
	} else {
		o.watchDrain()
	}
}

// watchDrain closes each Conn that still reads the source and finishes no send at
// all. mu is held.
func (o *Offer) watchDrain() {
	var bound time.Duration
	seen := make(map[*Conn]uint64)
	for c := range o.reading {
		bound = c.d.cfg.DrainTimeout
		seen[c] = c.stats.sends.Load()
	}
	o.timer = time.AfterFunc(bound, func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		if o.gone {
			return
		}
		for c, n := range seen {
			if o.reading[c] > 0 && c.stats.sends.Load() == n {
				c.fail(fmt.Errorf("sends of a withdrawn offer did not finish for %v", bound))
			}
		}
		o.watchDrain()
	})
}

// drain gives the source back. mu is held.
func (o *Offer) drain() {
	if o.gone {
		return
	}
	o.gone = true
	if o.timer != nil {
		o.timer.Stop()
	}
	o.src.Free()
	close(o.drained)
}

// Drained is closed once the offer is withdrawn, or released by the peer, and
// nothing reads its source any more. The source's memory is the user's again.
// The wait is bounded: a Conn whose sends do not finish within
// Config.DrainTimeout is closed.
func (o *Offer) Drained() <-chan struct{} { return o.drained }

// read notes that a chunk is about to be read from the source; false if the
// offer is withdrawn.
func (o *Offer) read(c *Conn) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.withdrawn {
		return false
	}
	if o.reading == nil {
		o.reading = make(map[*Conn]int)
	}
	o.reading[c]++
	return true
}

// readDone undoes read.
func (o *Offer) readDone(c *Conn) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.reading[c]--; o.reading[c] == 0 {
		delete(o.reading, c)
	}
	if o.withdrawn && len(o.reading) == 0 {
		o.drain()
	}
}

// join and leave keep the list of Conns that have the offer.
func (o *Offer) join(c *Conn) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.withdrawn {
		return fmt.Errorf("conn: offer: withdrawn: %w", net.ErrClosed)
	}
	o.conns = append(o.conns, c)
	return nil
}

func (o *Offer) leave(c *Conn) {
	o.mu.Lock()
	for i, x := range o.conns {
		if x == c {
			o.conns = append(o.conns[:i], o.conns[i+1:]...)
			break
		}
	}
	orphan := o.leased && len(o.conns) == 0
	o.mu.Unlock()
	if orphan {
		o.Withdraw()
	}
}

// AddOffer lets the peer of c ask for o. It fails if c is closed, has no lanes,
// or has too many offers open. Adding the same offer twice does nothing. It may
// block as Flags does.
func (c *Conn) AddOffer(o *Offer) error {
	if err := c.Offload(); err != nil {
		return err
	}
	flags := c.Flags(o) // so that its region is registered here too, wherever its descriptor was made
	if flags&(OfferStaged|OfferDirect) == OfferStaged && c.ipc.reason() != nil {
		if err := c.pinned.keep(o.where.Device()); err != nil {
			return err
		}
	}
	added, err := c.offers.add(o)
	if err != nil || !added {
		return err
	}
	return c.enlist(o)
}

// enlist has an offer know that it was added, unless it was withdrawn since, or the
// Conn has ended.
func (c *Conn) enlist(o *Offer) error {
	if err := o.join(c); err != nil {
		c.offers.remove(o.token)
		c.lingerCheck()
		return err
	}
	if err := c.offers.over(); err != nil { // who ended them may not have found c with the offer
		o.leave(c)
		return err
	}
	c.placed(o)
	return nil
}

// Release tells the peer that its offer is wanted no more: it has landed, or
// never will. Unknown tokens are harmless.
func (c *Conn) Release(token Token) {
	if c.control != nil {
		c.control.send(frame{typ: frameRelease, token: token})
	}
}
