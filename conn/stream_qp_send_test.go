package conn

import (
	"bytes"
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/gdrpc/gdrpc/ibverbs"
	"github.com/stretchr/testify/require"
)

// watchedQP is a queue pair whose sends are seen before they are posted, and may
// be refused.
type watchedQP struct {
	ibverbs.QP
	mu    sync.Mutex
	flags []ibverbs.SendFlags              // of all data; guarded by mu
	most  uint32                           // bytes in one message so far; guarded by mu
	seen  func(qp ibverbs.QP, n int) error // n counts data from 1; may be nil
}

func (q *watchedQP) PostSend(wrs []ibverbs.SendWR) (int, error) {
	if len(wrs[0].SGList) > 0 {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.flags = append(q.flags, wrs[0].Flags)
		q.most = max(q.most, wrs[0].SGList[0].Length)
		if q.seen != nil {
			if err := q.seen(q.QP, len(q.flags)); err != nil {
				return 0, err
			}
		}
	}
	return q.QP.PostSend(wrs)
}

// watchedPair is a pair whose client's stream has a watchedQP.
func watchedPair(t *testing.T, seen func(ibverbs.QP, int) error) (client, server *Conn, q *watchedQP) {
	n := newNetwork(t, quiet())
	n.filled = func(s *Setup) {
		q = &watchedQP{QP: s.StreamLane.qp, seen: seen}
		s.StreamLane.qp = q
	}
	client, server = n.pair(t)
	return client, server, q
}

// uneven is n bytes of which no two blocks are the same.
func uneven(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{}).Read(b) // never fails
	return b
}

// readAhead begins to read n bytes, and tells what came.
func readAhead(c *Conn, n int) <-chan []byte {
	got := make(chan []byte)
	go func() {
		b := make([]byte, n)
		_, _ = io.ReadFull(c, b)
		got <- b
	}()
	return got
}

// TestBatches: of the blocks of one Write some are quiet, never the last one that
// the peer has for itself, and a Read that waits for loud ones gets them all.
func TestBatches(t *testing.T) {
	client, server, q := watchedPair(t, nil)
	want := uneven(10*streamBlock + 77)
	got := readAhead(server, len(want))
	awaitTurn(t, server)
	n, err := client.Write(want)
	require.NoError(t, err)
	require.Equal(t, len(want), n)
	require.True(t, bytes.Equal(want, <-got))
	run, quietly := 0, 0
	for _, f := range q.flags {
		if f == sendLoud {
			run = 0
			continue
		}
		require.Equal(t, sendQuiet, f)
		quietly++
		run++
		require.Less(t, run, streamBatch)
	}
	require.Zero(t, run, "a quiet send has no loud one behind it")
	require.Positive(t, quietly)
	require.Len(t, q.flags, 11)
}

// TestBatchEnds: a queue pair that breaks within a batch, of which some sends
// completed without a word, some are flushed or none was posted, gives back
// every block.
func TestBatchEnds(t *testing.T) {
	errRefused := errors.New("refused by the device")
	for name, breaks := range map[string]func(ibverbs.QP) error{
		"flushed": func(qp ibverbs.QP) error { return qp.Modify(errState, ibverbs.QPAttrState) },
		"refused": func(ibverbs.QP) error { return errRefused },
	} {
		for at := 1; at <= streamBatch; at++ {
			client, server, _ := watchedPair(t, func(qp ibverbs.QP, n int) error {
				if n == at {
					return breaks(qp)
				}
				return nil
			})
			s := client.stream.(*qpStream)
			_, err := client.Write(make([]byte, 3*streamBatch*streamBlock))
			require.Error(t, err, name)
			_, err = io.Copy(io.Discard, client)
			require.Error(t, err, "a Read is not told")
			closeBoth(client, server)
			<-s.finished
			require.Zero(t, s.l.posted.Load(), "%s at %d", name, at)
			require.Len(t, s.free, streamBlocks, "%s at %d", name, at)
		}
	}
}

// TestPeersStreamBlock: no message is larger than what the peer takes in one.
func TestPeersStreamBlock(t *testing.T) {
	for _, most := range []uint32{5000, streamBlock, math.MaxUint32} {
		testStreamBlock(t, most, min(most, streamBlock))
	}
}

func testStreamBlock(t *testing.T, peers, most uint32) {
	n := newNetwork(t, quiet())
	var q *watchedQP
	n.filled = func(s *Setup) {
		s.Peer.StreamBlock = peers
		q = &watchedQP{QP: s.StreamLane.qp}
		s.StreamLane.qp = q
	}
	client, server := n.pair(t)
	want := uneven(int(4*most + 1))
	got := readAhead(server, len(want))
	_, err := client.Write(want)
	require.NoError(t, err)
	require.True(t, bytes.Equal(want, <-got))
	require.Equal(t, most, q.most)
	require.Len(t, q.flags, 5)
}

// bareQP refuses messages without payload.
type bareQP struct{ ibverbs.QP }

func (q bareQP) PostSend(wrs []ibverbs.SendWR) (int, error) {
	if len(wrs[0].SGList) == 0 {
		return 0, errNoNIC
	}
	return q.QP.PostSend(wrs)
}

// TestStreamBareRefused: a queue pair that takes a message without payload no more,
// and works on meanwhile, ends the connection for both sides: the peer waits for
// credits that it will not get.
func TestStreamBareRefused(t *testing.T) {
	client, server := verbsPair(t, quiet())
	l := server.stream.(*qpStream).l
	l.posts.sendLock.Lock()
	l.qp = bareQP{l.qp}
	l.posts.sendLock.Unlock()
	wrote := make(chan error, 1)
	go func() {
		_, err := client.Write(make([]byte, 2*streamDepth*streamBlock))
		wrote <- err
	}()
	_, err := io.Copy(io.Discard, server)
	require.ErrorIs(t, err, errNoNIC)
	requireLost(t, server, errNoNIC.Error())
	server.Close()
	require.Error(t, <-wrote)
}
