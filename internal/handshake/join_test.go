package handshake

import (
	"io"
	"net"
	"testing"

	"github.com/gdrpc/gdrpc/conn"
	"github.com/gdrpc/gdrpc/internal/handshake/wirepb"
	"github.com/stretchr/testify/require"
)

// openSession sends a Hello by hand and returns the socket and the session.
func openSession(t *testing.T, ts *testServer) (net.Conn, sessionID, *secret) {
	t.Helper()
	c := dial(t, ts.addr())
	_, err := c.Write(goodHello)
	require.NoError(t, err)
	hello := new(wirepb.Hello)
	l := &link{sock: c, recv: serverMagic}
	require.NoError(t, l.read("test", TypeHello, hello))
	require.Len(t, hello.GetSessionId(), idSize)
	require.Len(t, hello.GetSessionSecret(), secretSize)
	key := secret(hello.GetSessionSecret())
	return c, sessionID(hello.GetSessionId()), &key
}

// joinAs dials one join and proves it with the given secret.
func joinAs(t *testing.T, ts *testServer, ref laneRef, id sessionID, key *secret) (net.Conn, error) {
	t.Helper()
	c := dial(t, ts.addr())
	l := &link{sock: c, send: clientMagic, recv: serverMagic}
	_, err := l.prove(ref, id, key, conn.QPInfo{QPNum: 1, PSN: 2})
	return c, err
}

// TestHostileJoins: bad joins are refused, counted by kind, and do not disturb
// the session, which ends soft-joined.
func TestHostileJoins(t *testing.T) {
	ts := newTestServer(t, newServer())
	c, id, key := openSession(t, ts)
	otherID, otherKey := id, *key
	otherID[0]++
	otherKey[0]++
	refuse := func(kind Kind, ref laneRef, id sessionID, key *secret) {
		t.Helper()
		_, err := joinAs(t, ts, ref, id, key)
		require.ErrorIs(t, err, errRefused)
		require.Equal(t, kind, KindOf(<-ts.joins))
	}
	refuse(KindUnknownSession, controlRef, otherID, key)
	refuse(KindWrongProof, controlRef, id, &otherKey)
	refuse(KindLaneTaken, laneRef{conn.LaneBulk, 1}, id, key)
	refuse(KindLaneTaken, laneRef{conn.LaneBulk, 1<<32 - 1}, id, key)
	refuse(KindLaneTaken, laneRef{conn.LaneControl, 1}, id, key)
	refuse(KindLaneTaken, laneRef{conn.LaneStream, 0}, id, key)
	refuse(KindLaneTaken, laneRef{0, 0}, id, key)

	for _, ref := range laneRefs(1) {
		_, err := joinAs(t, ts, ref, id, key)
		require.NoError(t, err)
		require.NoError(t, <-ts.joins)
		refuse(KindLaneTaken, ref, id, key)
	}
	o := decide(t, ts, c, conn.ModeSoftJoined)
	require.NoError(t, o.err)
	require.Equal(t, conn.ModeSoftJoined, o.res.Mode)

	refuse(KindUnknownSession, controlRef, id, key)
}

// decide sends Up with all lanes, reads the Report, and sends Decide.
func decide(t *testing.T, ts *testServer, c net.Conn, mode conn.Mode) *outcome {
	t.Helper()
	l := &link{sock: c, send: clientMagic, recv: serverMagic}
	require.NoError(t, l.write("test", TypeUp, &wirepb.Up{Joins: allLanes}))
	require.NoError(t, l.read("test", typeReport, new(wirepb.Report)))
	require.NoError(t, l.write("test", TypeDecide, &wirepb.Decide{Mode: uint32(mode), Reason: "so"}))
	return ts.outcome(t)
}

// TestJoinsUnused: lanes that stand but are not decided for are closed.
func TestJoinsUnused(t *testing.T) {
	ts := newTestServer(t, newServer())
	c, id, key := openSession(t, ts)
	var socks []net.Conn
	for _, ref := range laneRefs(1) {
		s, err := joinAs(t, ts, ref, id, key)
		require.NoError(t, err)
		socks = append(socks, s)
	}
	o := decide(t, ts, c, conn.ModePlain)
	require.NoError(t, o.err)
	require.Equal(t, conn.ModePlain, o.res.Mode)
	for _, s := range socks {
		_, err := s.Read(make([]byte, 1))
		require.ErrorIs(t, err, io.EOF)
	}
}

// TestMalformedJoins have raw bytes, and close their sending side at the end.
func TestMalformedJoins(t *testing.T) {
	ts := newTestServer(t, newServer())
	c, id, key := openSession(t, ts)
	join := msg(clientMagic, TypeJoin, &wirepb.Join{SessionId: id[:], Lane: 1})
	tests := []struct {
		name string
		send []byte
		kind Kind
	}{
		{"closes in Join", join[:15], KindClosed},
		{"closes after Join", join, KindClosed},
		{"empty", header(clientMagic, TypeJoin, 0, 0, 0, 0), KindUnknownSession},
		{"oversize", header(clientMagic, TypeJoin, 0, 0, 0x10, 1), KindMalformed},
		{"no protobuf", append(header(clientMagic, TypeJoin, 0, 0, 0, 1), 7), KindMalformed},
		{"long session id", msg(clientMagic, TypeJoin, &wirepb.Join{SessionId: append(id[:], 0), Lane: 1}), KindUnknownSession},
		{"garbage for Proof", append(join[:len(join):len(join)], "garbage, more of it"...), KindMalformed},
		{"empty Proof", append(join[:len(join):len(join)], header(clientMagic, TypeProof, 0, 0, 0, 0)...), KindWrongProof},
		{"Join twice", append(join[:len(join):len(join)], join...), KindMalformed},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := dial(t, ts.addr())
			_, err := s.Write(tt.send)
			require.NoError(t, err)
			s.(*net.TCPConn).CloseWrite()
			err = <-ts.joins
			require.Equal(t, tt.kind, KindOf(err), err)
		})
	}
	for _, ref := range laneRefs(1) {
		_, err := joinAs(t, ts, ref, id, key)
		require.NoError(t, err)
	}
	require.Equal(t, conn.ModeSoftJoined, decide(t, ts, c, conn.ModeSoftJoined).res.Mode)
}

// TestBadQueuePair: a proved join with an impossible queue pair costs the lane
// only.
func TestBadQueuePair(t *testing.T) {
	ts := newTestServer(t, newServer())
	c, id, key := openSession(t, ts)
	s := dial(t, ts.addr())
	l := &link{sock: s, send: clientMagic, recv: serverMagic}
	_, err := l.prove(controlRef, id, key, conn.QPInfo{QPNum: 1 << 24})
	require.ErrorIs(t, err, errRefused)
	require.Equal(t, KindMalformed, KindOf(<-ts.joins))
	o := decide(t, ts, c, conn.ModePlain)
	require.NoError(t, o.err)
	require.Equal(t, conn.ModePlain, o.res.Mode)
}
