package ipc

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"net"
	"sync"
	"time"
)

const (
	// proofBound is how long a socket may take to prove itself.
	proofBound = 2 * time.Second
	// maxProofs bounds the sockets that are proving themselves; others wait to
	// be accepted.
	maxProofs = 64
	// proofShare is how long a socket may take for its proof while others
	// wait. An honest one takes two round trips of the scheduler.
	proofShare = 100 * time.Millisecond
)

// Listener takes the sockets of many connections under one name.
type Listener struct {
	name string
	ln   *net.UnixListener
	find func(id [16]byte) (Key, bool)
	take func(Key, *Socket)
	slot chan struct{}

	mu      sync.Mutex
	proving map[*Socket]time.Time // since when; guarded by mu
	closed  bool                  // guarded by mu
	wg      sync.WaitGroup
}

// Listen listens on an abstract socket with a random name. find returns the key
// of a connection that waits for its socket; take is handed each socket that has
// proved that it knows the key, and owns it. Both must not block.
func Listen(find func(id [16]byte) (Key, bool), take func(Key, *Socket)) (*Listener, error) {
	if err := probe(); err != nil {
		return nil, err
	}
	var random [16]byte
	rand.Read(random[:]) // never fails (crypto/rand.Read)
	l := &Listener{
		name: "gdrpc-" + hex.EncodeToString(random[:]), find: find, take: take,
		slot: make(chan struct{}, maxProofs), proving: make(map[*Socket]time.Time),
	}
	var err error
	if l.ln, err = net.ListenUnix("unixpacket", &net.UnixAddr{Net: "unixpacket", Name: "@" + l.name}); err != nil {
		return nil, err
	}
	l.wg.Add(1)
	go l.accept()
	return l, nil
}

// Name is the socket's name, without the zero byte that makes it abstract.
func (l *Listener) Name() string { return l.name }

// Close ends the listener and the proofs under way, and waits for them. Sockets
// that were taken stay.
func (l *Listener) Close() error {
	l.mu.Lock()
	l.closed = true
	for s := range l.proving {
		s.Close()
	}
	l.mu.Unlock()
	err := l.ln.Close()
	l.wg.Wait()
	return err
}

func (l *Listener) accept() {
	defer l.wg.Done()
	for {
		c, err := l.ln.AcceptUnix()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil: // out of descriptors, most likely: the next may do
			time.Sleep(10 * time.Millisecond)
			continue
		}
		l.takeSlot()
		s := &Socket{c: c}
		if !l.enter(s) {
			s.Close()
			return
		}
		l.wg.Add(1)
		go l.serve(s)
	}
}

// takeSlot waits until one more socket may prove itself. Those that take
// longer than their share make room, so that sockets which prove nothing keep
// no other one out.
func (l *Listener) takeSlot() {
	for {
		select {
		case l.slot <- struct{}{}:
			return
		default:
		}
		s, age := l.oldest()
		if s != nil && age >= proofShare {
			if !l.leave(s) {
				continue // it has just proved itself
			}
			s.Close() // serve gives its slot back
			l.slot <- struct{}{}
			return
		}
		timer := time.NewTimer(proofShare - age)
		select {
		case l.slot <- struct{}{}:
			timer.Stop()
			return
		case <-timer.C:
		}
	}
}

// oldest returns the socket that has been proving itself for longest; nil if
// there is none.
func (l *Listener) oldest() (oldest *Socket, age time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for s, since := range l.proving {
		if d := time.Since(since); oldest == nil || d > age {
			oldest, age = s, d
		}
	}
	return oldest, age
}

// serve has one socket prove itself.
func (l *Listener) serve(s *Socket) {
	defer l.wg.Done()
	defer func() { <-l.slot }()
	s.c.SetDeadline(time.Now().Add(proofBound))
	k, err := s.admit(l.find, func() bool { return l.leave(s) })
	if err != nil {
		l.leave(s)
		s.Close()
		return
	}
	s.c.SetDeadline(time.Time{})
	l.take(k, s)
}

func (l *Listener) enter(s *Socket) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.proving[s] = time.Now()
	}
	return !l.closed
}

// leave takes s out; false if it is out already, or the listener is closed.
func (l *Listener) leave(s *Socket) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, in := l.proving[s]
	delete(l.proving, s)
	return in && !l.closed
}
