package ipc

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

const (
	// proofBound is how long a socket may take to prove itself.
	proofBound = 2 * time.Second
	// maxProofs bounds the sockets that are proving themselves; others are
	// closed.
	maxProofs = 64
)

// Listener takes the sockets of many connections under one name.
type Listener struct {
	name string
	ln   *net.UnixListener
	find func(id [16]byte) (Key, bool)
	take func(Key, *Socket)
	slot chan struct{}

	mu      sync.Mutex
	proving map[*Socket]struct{} // guarded by mu
	closed  bool                 // guarded by mu
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
		slot: make(chan struct{}, maxProofs), proving: make(map[*Socket]struct{}),
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
		select {
		case l.slot <- struct{}{}:
			l.wg.Add(1)
			go l.serve(&Socket{c: c})
		default:
			c.Close()
		}
	}
}

// serve has one socket prove itself.
func (l *Listener) serve(s *Socket) {
	defer l.wg.Done()
	defer func() { <-l.slot }()
	if !l.enter(s) {
		s.Close()
		return
	}
	s.c.SetDeadline(time.Now().Add(proofBound))
	k, err := s.admit(l.find)
	if !l.leave(s) || err != nil {
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
		l.proving[s] = struct{}{}
	}
	return !l.closed
}

func (l *Listener) leave(s *Socket) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.proving, s)
	return !l.closed
}

// Dial connects to the listener of that name and proves the key. Errors that
// say why there is no shared memory: ErrOtherUser, ErrUnknown, ErrProof,
// ErrElsewhere.
func Dial(ctx context.Context, name string, k Key) (*Socket, error) {
	if err := probe(); err != nil {
		return nil, err
	}
	var d net.Dialer
	c, err := d.DialContext(ctx, "unixpacket", "@"+name)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrElsewhere, err)
	}
	s := &Socket{c: c.(*net.UnixConn)}
	if end, ok := ctx.Deadline(); ok {
		s.c.SetDeadline(end)
	}
	stop := context.AfterFunc(ctx, func() { s.c.SetDeadline(time.Unix(1, 0)) })
	err = sameUser(s.c)
	if err == nil {
		err = s.prove(&k)
	}
	if !stop() {
		err = errors.Join(ctx.Err(), err)
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	return s, s.c.SetDeadline(time.Time{})
}

// ErrElsewhere is what Dial fails with where the name does not exist: the server
// is in another network namespace, or gone.
var ErrElsewhere = errors.New("the server's Unix socket cannot be reached (another network namespace?)")
