package ipc

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/gdrpc/gdrpc/internal/hangup"
)

// dialPause is between two attempts at a listener that is busy.
const dialPause = 5 * time.Millisecond

// Why Dial reaches no server.
var (
	// ErrElsewhere: the name does not exist. The server is in another network
	// namespace, or gone.
	ErrElsewhere = errors.New("the server's Unix socket cannot be reached (another network namespace?)")
	// ErrBusy: the server takes no more sockets, or has ended the proof of
	// this one for the sake of others.
	ErrBusy = errors.New("the server's Unix socket is busy")
)

// Dial connects to the listener of that name and proves the key. A listener that
// is busy is tried again until ctx ends. Errors that say why there is no shared
// memory: ErrOtherUser, ErrUnknown, ErrProof, ErrElsewhere, ErrBusy.
func Dial(ctx context.Context, name string, k Key) (*Socket, error) {
	if err := probe(); err != nil {
		return nil, err
	}
	for {
		s, err := attempt(ctx, name, &k)
		if !errors.Is(err, ErrBusy) {
			return s, err
		}
		timer := time.NewTimer(dialPause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, errors.Join(ctx.Err(), err)
		}
	}
}

func attempt(ctx context.Context, name string, k *Key) (*Socket, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "unixpacket", "@"+name)
	switch {
	case err != nil && (queueFull(err) || os.IsTimeout(err) || errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)): // descriptors come back
		return nil, fmt.Errorf("%w: %w", ErrBusy, err)
	case err != nil:
		return nil, fmt.Errorf("%w: %w", ErrElsewhere, err)
	}
	s := &Socket{c: c.(*net.UnixConn)}
	if end, ok := ctx.Deadline(); ok {
		s.c.SetDeadline(end)
	}
	stop := context.AfterFunc(ctx, func() { s.c.SetDeadline(time.Unix(1, 0)) })
	err = sameUser(s.c)
	if err == nil {
		err = s.prove(k)
	}
	if !stop() {
		err = errors.Join(ctx.Err(), err)
	}
	if err != nil {
		s.Close()
		if hangup.Is(err) {
			err = fmt.Errorf("%w: it has ended the proof: %w", ErrBusy, err)
		}
		return nil, err
	}
	return s, s.c.SetDeadline(time.Time{})
}
