package conn

import (
	"errors"
	"io"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gdrpc/gdrpc/ibverbs"
	"github.com/gdrpc/gdrpc/ibverbs/faultverbs"
	"github.com/stretchr/testify/require"
)

// lateSends is a network whose sends of side 0 complete late.
func lateSends(t *testing.T) (client, server *Conn) {
	n := newNetworkOf(t, func(side int, c *Config) {
		if side == 0 {
			hold := faultverbs.HoldSends(30 * time.Millisecond)
			c.NICs = []ibverbs.Device{faultverbs.Wrap(c.NICs[0], &faultverbs.Script{Hold: hold})}
		}
	})
	client, server = n.pair(t)
	return client, server
}

// TestWaitForSends: a Write that lacks nothing but the completions of its sends
// learns of them, whether or not a Read waits for messages meanwhile. The peer
// reads nothing and says nothing.
func TestWaitForSends(t *testing.T) {
	for _, reads := range []bool{false, true} {
		client, server := lateSends(t)
		if reads {
			read := make(chan struct{})
			go func() {
				_, _ = client.Read(make([]byte, 1))
				close(read)
			}()
			t.Cleanup(func() { <-read })
			t.Cleanup(func() { client.Close() })
			awaitTurn(t, client)
		}
		require.Greater(t, streamWindow, streamBlocks, "else credits end the writing")
		require.NoError(t, client.SetWriteDeadline(time.Now().Add(20*time.Second)))
		_, err := client.Write(make([]byte, streamWindow*streamBlock))
		require.NoError(t, err)
		_, err = io.CopyN(io.Discard, server, streamWindow*streamBlock)
		require.NoError(t, err)
	}
}

// awaitTurn waits until somebody waits for events of c's stream.
func awaitTurn(t *testing.T, c *Conn) {
	w := c.stream.(*qpStream).l.waits
	for w.turn.TryLock() {
		w.turn.Unlock()
		require.NoError(t, soon(t).Err())
	}
}

// TestWaitTurns: the turn to wait for events passes on: a Read whose deadline
// ends hands it to the Write that waits, which a credit then wakes.
func TestWaitTurns(t *testing.T) {
	client, server := lateSends(t)
	read := make(chan error)
	go func() {
		_, err := client.Read(make([]byte, 1))
		read <- err
	}()
	awaitTurn(t, client)
	const more = 1 << 20
	written := make(chan error)
	go func() {
		_, err := client.Write(make([]byte, streamWindow*streamBlock+more))
		written <- err
	}()
	require.NoError(t, client.SetReadDeadline(time.Now()))
	require.ErrorIs(t, <-read, os.ErrDeadlineExceeded)
	_, err := io.CopyN(io.Discard, server, streamWindow*streamBlock+more)
	require.NoError(t, err)
	require.NoError(t, <-written)
}

// TestCloseWriteBehindBareSends: the end of the stream is sent although every
// message without payload is still under way, and nobody reads or writes.
func TestCloseWriteBehindBareSends(t *testing.T) {
	client, server := lateSends(t)
	s := client.stream.(*qpStream)
	s.mu.Lock()
	for !s.bareFull() {
		s.owed = 0
		require.NoError(t, s.l.postSend(bareWRID, ibverbs.SGE{}, ibverbs.WRSendWithImm, 0))
		s.bare++
	}
	s.mu.Unlock()
	require.NoError(t, client.CloseWrite())
	_, err := server.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF)
}

// errNoEvents is what a device that is gone says.
var errNoEvents = errors.New("no events any more")

// brokenChannel is a channel whose device was removed.
type brokenChannel struct{ ibverbs.CompChannel }

func (brokenChannel) Wait() (ibverbs.CQ, error) { return nil, errNoEvents }

// TestWaitFails: a Read to which the completion channel says that no event will
// come does not wait for one again and again.
func TestWaitFails(t *testing.T) {
	client, server := verbsPair(t, quiet())
	greet(t, client, server)
	l := client.stream.(*qpStream).l
	l.waits.turn.Lock()
	l.channel = brokenChannel{l.channel}
	l.waits.turn.Unlock()
	requireNoEvents(t, client)
}

// TestArmFails: the same where the queue cannot be armed, although it can be polled.
func TestArmFails(t *testing.T) {
	var gone atomic.Bool
	n := newNetworkOf(t, func(side int, c *Config) {
		if side == 0 {
			c.NICs = []ibverbs.Device{faultverbs.Wrap(c.NICs[0], &faultverbs.Script{Refuse: func(call faultverbs.Call) error {
				if call.Op == faultverbs.OpReqNotify && gone.Load() {
					return errNoEvents
				}
				return nil
			}})}
		}
	})
	client, _ := n.pair(t)
	gone.Store(true)
	requireNoEvents(t, client)
}

func requireNoEvents(t *testing.T, c *Conn) {
	t.Helper()
	require.NoError(t, c.SetReadDeadline(time.Now().Add(5*time.Second)))
	_, err := c.Read(make([]byte, 1))
	require.ErrorIs(t, err, errNoEvents)
}

// TestCloseBeforeHandOn: whoever closes a lane that no Conn has, and whose own
// goroutine has ended, may wait for its last completions.
func TestCloseBeforeHandOn(t *testing.T) {
	n := newNetworkOf(t, func(side int, c *Config) {
		refuse := func(call faultverbs.Call) error {
			if call.Op == faultverbs.OpReqNotify {
				return errNoEvents
			}
			return nil
		}
		c.NICs = []ibverbs.Device{faultverbs.Wrap(c.NICs[0], &faultverbs.Script{Refuse: refuse})}
	})
	v, err := n.domains[0].OpenVerbs(nil, nil)
	require.NoError(t, err)
	l := v.lanes[0]
	require.ErrorIs(t, l.early.wait(soon(t), l.early.got), errNoEvents)
	l.early.end()
	l.poller.waiter.Wait() // the goroutine's turn has ended
	l.wait(l.drained, newDeadline(l.kick), true, l.changes())
	require.NoError(t, v.Close())
}

// TestClosedLaneIsDead: nobody polls the queue of a closed lane, whose blocks are
// freed.
func TestClosedLaneIsDead(t *testing.T) {
	client, server := verbsPair(t, quiet())
	greet(t, client, server)
	require.NoError(t, client.Close())
	s := client.stream.(*qpStream)
	<-s.finished
	require.True(t, s.l.isDead())
}

// TestCloseWriteOverTCP: CloseWrite, which waits for room to send the end of the
// stream, learns that a message without payload has made some.
func TestCloseWriteOverTCP(t *testing.T) {
	client, server := sharedPair(t, quiet())
	s := client.stream.(*qpStream)
	s.mu.Lock()
	room := streamSends - streamBlocks - s.bare
	s.bare += room // as if so many were under way
	s.mu.Unlock()
	done := make(chan error)
	begun := time.Now()
	go func() { done <- client.CloseWrite() }()
	require.Eventually(t, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.flags != 0
	}, patience, tick)
	for range room {
		s.sent(bareWRID)
	}
	require.NoError(t, <-done)
	require.Less(t, time.Since(begun), s.drainBound)
	_, err := server.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF)
}
