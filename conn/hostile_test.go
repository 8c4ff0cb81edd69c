package conn

import (
	"testing"
	"time"

	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/ibverbs"
	"github.com/stretchr/testify/require"
)

// rogue is a peer that says what it likes: the lanes of a real one, without a
// Conn that keeps the rules.
type rogue struct {
	t             *testing.T
	control, bulk *Lane
	eager         *Lane
	source        *gpubuf.Slice   // of what it sends; outlives the lanes
	events        chan ibverbs.WC // receive completions of both lanes, and errors
	sent          chan struct{}   // a token for each completed send
}

// newRogue returns a server Conn with a rogue for a client.
func newRogue(t *testing.T, cfg *Config) (*rogue, *Conn) {
	d := newDomain(t, cfg)
	var lanes [3][2]*Lane
	for i, kind := range []LaneKind{LaneStream, LaneControl, LaneBulk} {
		var err error
		lanes[i], err = d.lanePair(kind)
		require.NoError(t, err)
	}
	require.NoError(t, d.acquire())
	server, err := newConn(d, Setup{
		Mode: ModeSoftShared, Gdrpc: true, Checksums: d.cfg.Checksums, Peer: d.Limits(), Control: lanes[1][1], Bulk: []*Lane{lanes[2][1]},
		StreamLane: lanes[0][1], Local: pipeAddr{}, Remote: pipeAddr{},
	})
	require.NoError(t, err)
	server.preface.observe([]byte(http2Preface))
	r := &rogue{t: t, control: lanes[1][0], bulk: lanes[2][0], eager: lanes[1][0].eager, events: make(chan ibverbs.WC, 1024), sent: make(chan struct{}, 1024)}
	for _, l := range []*Lane{r.control, r.bulk, r.eager} {
		l.arm(func(wc *ibverbs.WC) {
			if wc.WRID&wridRecv != 0 || wc.Status != ibverbs.WCSuccess {
				r.events <- *wc
			} else {
				r.sent <- struct{}{}
			}
		}, func(error) {})
		l.start()
	}
	r.source, err = d.hostBlock(eagerBlock)
	require.NoError(t, err)
	t.Cleanup(r.source.Free)
	t.Cleanup(func() {
		server.Close()
		for i := range lanes {
			lanes[i][0].Close()
		}
		<-server.ending.done
	})
	return r, server
}

// send sends raw bytes on the control lane.
func (r *rogue) send(b []byte) {
	copy(r.control.sendBlock(0), b)
	require.NoError(r.t, r.control.postSendBlock(0, len(b), ibverbs.WRSend, 0, sendLoud))
	r.control.reap()
}

func (r *rogue) frame(f frame) {
	var b [frameSize]byte
	r.send(b[:f.encode(b[:])])
}

// ask sends a frame as often as the server's credits allow, and returns no
// credits for the answers, until the server has failed.
func (r *rogue) ask(server *Conn, f frame) {
	for credits := controlDepth - controlReserve; server.ending.failed.get() == nil; {
		for ; credits > 0; credits-- {
			r.frame(f)
			select {
			case <-r.sent:
			case <-server.ending.failed.ch:
			}
		}
		select {
		case wc := <-r.events:
			if wc.Status == ibverbs.WCSuccess {
				i := int(wc.WRID &^ wridRecv)
				f, err := decodeFrame(r.control.recvBlock(i)[:wc.ByteLen])
				require.NoError(r.t, err)
				require.NoError(r.t, r.control.postRecvBlock(i))
				credits += int(f.credit)
			}
		case <-server.ending.failed.ch:
		}
	}
}

// requireReset waits until the server has reset the Conn for the reason given.
func requireReset(t *testing.T, c *Conn, reason string) {
	t.Helper()
	select {
	case <-c.ending.failed.ch:
	case <-soon(t).Done():
		t.Fatal("the Conn goes on")
	}
	require.ErrorContains(t, c.ending.failed.get(), reason)
	<-c.ending.done
	_, err := c.Read(make([]byte, 1))
	require.ErrorContains(t, err, reason, "Read says why")
	require.Error(t, c.Offload())
}

func TestRogueControl(t *testing.T) {
	ok := request{chunk: 4096, count: 1, last: 4096}
	for name, tc := range map[string]struct {
		act    func(*rogue)
		reason string
	}{
		"garbage":              {func(r *rogue) { r.send([]byte("GET / HTTP/1.1\r\n\r\n")) }, "control frame"},
		"unknown frame":        {func(r *rogue) { r.frame(frame{typ: 77}) }, "unknown control frame type 77"},
		"credits from nowhere": {func(r *rogue) { r.frame(frame{typ: frameCredit, credit: 1 << 31}) }, "returned 2147483648 credits"},
		"request of nothing":   {func(r *rogue) { r.frame(frame{typ: frameRequest, request: request{chunk: 1}}) }, "request of 0 messages"},
		"last above chunk":     {func(r *rogue) { r.frame(frame{typ: frameRequest, request: request{chunk: 1, count: 1, last: 2}}) }, "the last of 2"},
		"chunk above max_msg": {func(r *rogue) {
			r.frame(frame{typ: frameRequest, request: request{chunk: 1 << 30, count: 1, last: 1}})
		}, "messages of 1073741824 bytes"},
		"count above the receive queue": {func(r *rogue) {
			r.frame(frame{typ: frameRequest, request: request{chunk: 1, count: 1 << 31, last: 1}})
		}, "more than the peer's 64 receives"},
		"overflowing offset": {func(r *rogue) {
			q := ok
			q.offset = 1<<64 - 1
			r.frame(frame{typ: frameRequest, request: q})
		}, "request of 1 messages"},
		"frame as long as a receive": {func(r *rogue) { r.send(make([]byte, frameSize)) }, "control frame"},
		"control lane cut":           {func(r *rogue) { r.control.Close() }, "control lane"},
	} {
		t.Run(name, func(t *testing.T) {
			r, server := newRogue(t, quiet())
			tc.act(r)
			requireReset(t, server, tc.reason)
		})
	}
}

// TestRogueBulk answers requests with what was not asked for.
func TestRogueBulk(t *testing.T) {
	for name, tc := range map[string]struct {
		imm    func(id uint32) uint32
		length int
		reset  string
		fails  string
	}{
		"wrong id":          {func(id uint32) uint32 { return bulkImm(id+1, bulkData) }, 1000, "bulk lane 0: message of 1000 bytes for request 2", ""},
		"too short":         {func(id uint32) uint32 { return bulkImm(id, bulkData) }, 999, "message of 999 bytes", ""},
		"refusal with data": {func(id uint32) uint32 { return bulkImm(id, bulkRefused) }, 1000, "message of 1000 bytes", ""},
		"empty data":        {func(id uint32) uint32 { return bulkImm(id, bulkData) }, 0, "message of 0 bytes", ""},
		"unknown status":    {func(id uint32) uint32 { return bulkImm(id, 200) }, 0, "", "unknown status 200"},
		"failed source":     {func(id uint32) uint32 { return bulkImm(id, bulkFailed) }, 0, "", "could not read its source"},
	} {
		t.Run(name, func(t *testing.T) {
			r, server := newRogue(t, quiet())
			dst := alloc(t, newPool(t, "host"), 1000)
			l := server.Land(NewToken(), 0, dst)
			wc := <-r.events
			f, err := decodeFrame(r.control.recvBlock(int(wc.WRID &^ wridRecv))[:wc.ByteLen])
			require.NoError(t, err)
			require.Equal(t, frameRequest, f.typ)
			sge, err := r.bulk.nic.regions.sge(r.source, 0, uint32(tc.length))
			require.NoError(t, err)
			require.NoError(t, r.bulk.postSend(0, sge, ibverbs.WRSendWithImm, tc.imm(f.id)))
			err = l.Wait(soon(t))
			require.Error(t, err)
			<-l.Consumed()
			if tc.reset != "" {
				requireReset(t, server, tc.reset)
				return
			}
			require.ErrorContains(t, err, tc.fails)
			require.NoError(t, server.Offload(), "only the landing failed")
		})
	}
}

// TestRogueSilence holds a landing to its timeout and then, since the request
// is never answered, to the drain timeout.
func TestRogueSilence(t *testing.T) {
	cfg := quiet()
	cfg.LandingTimeout, cfg.DrainTimeout = 20*time.Millisecond, 20*time.Millisecond
	_, server := newRogue(t, cfg)
	dst := alloc(t, newPool(t, "emu"), 1<<20)
	l := server.Land(NewToken(), 0, dst)
	require.ErrorContains(t, l.Wait(soon(t)), "no byte of the attachment arrived for 20ms")
	<-l.Consumed()
	requireReset(t, server, "did not answer a cancelled request for 20ms")
}
