package listener

import (
	"sync/atomic"

	"github.com/gdrpc/gdrpc/internal/handshake"
)

// Stats counts what came of the sockets that a Listener has accepted.
type Stats struct {
	Verbs      uint64 // gdrpc connections with lanes on RDMA queue pairs
	SoftJoined uint64 // gdrpc connections with lanes on further sockets
	SoftShared uint64 // gdrpc connections with lanes on the same socket
	Plain      uint64 // gdrpc connections without lanes
	Original   uint64 // other connections, handed out as they came
	StockTLS   uint64 // other connections whose TLS was ended here
	Joins      uint64 // further sockets of gdrpc connections
	Busy       uint64 // told to come back: too many handshakes
	Evicted    uint64 // closed before they had sent enough, for one more or for descriptors
	Refused    Refused

	Silent     int // now: have not sent enough to tell what they are
	Handshakes int // now: are in a handshake, not counting joins
	Waiting    int // now: wait for Accept
}

// Refused counts the sockets that came to nothing, by reason.
type Refused struct {
	Closed         uint64 // the peer closed or reset it
	TimedOut       uint64 // the peer took too long
	Malformed      uint64 // the peer broke the protocol
	UnknownSession uint64 // a join of no handshake under way here
	WrongProof     uint64 // a join without its session's secret
	LaneTaken      uint64 // a second join of a lane, or of one that does not exist
	LaneFailed     uint64 // a lane that failed on this side, joined or shared
	TLS            uint64 // a TLS handshake that failed, over a certificate above all
	Clear          uint64 // in clear where TLS is required
	ConnFailed     uint64 // a connection that failed on this side after the handshake
}

// counters are the totals behind Stats.
type counters struct {
	verbs, softJoined, softShared, plain, original atomic.Uint64

	joins, busy, evicted, failed, stockTLS atomic.Uint64

	refused [handshake.Kinds]atomic.Uint64
}

// Stats returns a snapshot.
func (l *Listener) Stats() Stats {
	c := &l.counts
	return Stats{
		Verbs:      c.verbs.Load(),
		SoftJoined: c.softJoined.Load(),
		SoftShared: c.softShared.Load(),
		Plain:      c.plain.Load(),
		Original:   c.original.Load(),
		StockTLS:   c.stockTLS.Load(),
		Joins:      c.joins.Load(),
		Busy:       c.busy.Load(),
		Evicted:    c.evicted.Load(),
		Refused: Refused{
			Closed:         c.refused[handshake.KindClosed].Load(),
			TimedOut:       c.refused[handshake.KindTimeout].Load(),
			Malformed:      c.refused[handshake.KindMalformed].Load(),
			UnknownSession: c.refused[handshake.KindUnknownSession].Load(),
			WrongProof:     c.refused[handshake.KindWrongProof].Load(),
			LaneTaken:      c.refused[handshake.KindLaneTaken].Load(),
			LaneFailed:     c.refused[handshake.KindLane].Load(),
			TLS:            c.refused[handshake.KindTLS].Load(),
			Clear:          c.refused[handshake.KindClear].Load(),
			ConnFailed:     c.failed.Load(),
		},
		Silent:     l.silent.count(),
		Handshakes: l.hellos.count(),
		Waiting:    int(l.waiting.Load()),
	}
}
