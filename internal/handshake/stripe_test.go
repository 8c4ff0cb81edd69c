package handshake

import (
	"testing"

	"github.com/gdrpc/gdrpc/conn"
	"github.com/stretchr/testify/require"
)

// TestStriped: there are as many bulk lanes as both sides allow, in the order
// of their indices on both sides.
func TestStriped(t *testing.T) {
	tests := []struct {
		client, server, want int
		reason               string
	}{
		{1, 1, 1, ""},
		{1, 16, 1, ""},
		{16, 16, 16, ""},
		{4, 2, 2, "2 of 4 bulk joins: the server allows 2"},
		{4, 1, 1, "1 of 4 bulk joins: the server allows 1"},
	}
	for _, tt := range tests {
		s := newServer()
		s.Self.BulkJoins = tt.server
		ts := newTestServer(t, s)
		c := newClient(ts.addr())
		c.Self.BulkJoins = tt.client
		client := c.handshake(t, ts.addr())
		requireAgreed(t, client, ts.outcome(t))
		require.Equal(t, conn.ModeSoftJoined, client.res.Mode)
		require.Len(t, client.res.Bulk, tt.want)
		require.Equal(t, tt.reason, client.res.Reason)
	}
}

// TestStripedPartly: some bulk joins fail, on either side, and the others stand.
func TestStripedPartly(t *testing.T) {
	tests := []struct {
		name           string
		client, server Step
		reason         string
	}{
		{"client", forLane(stepDialLane, laneRef{conn.LaneBulk, 1}), "", "2 of 3 bulk joins: dialling the bulk 1 lane's socket: injected"},
		{"server", "", forLane(stepMakeLane, laneRef{conn.LaneBulk, 0}), "2 of 3 bulk joins: reading the server's Joined: the server refuses the join: lane: injected"},
		{"server, after its answer", "", forLane(stepAttachLane, laneRef{conn.LaneBulk, 2}), "2 of 3 bulk joins: the server: attaching the bulk 2 lane: lane: injected"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newServer()
			s.Self.BulkJoins = 3
			s.Hook = (&recorder{failAt: tt.server}).hook
			ts := newTestServer(t, s)
			c := newClient(ts.addr())
			c.Self.BulkJoins = 3
			c.Hook = (&recorder{failAt: tt.client}).hook
			client := c.handshake(t, ts.addr())
			requireAgreed(t, client, ts.outcome(t))
			require.Len(t, client.res.Bulk, 2)
			require.Equal(t, tt.reason, client.res.Reason)
		})
	}
}

// TestStripedNotAtAll: without any bulk lane, and without the control lane, the
// others are no use; they are ended and closed.
func TestStripedNotAtAll(t *testing.T) {
	tests := []struct {
		name string
		fail func(ref string) bool
	}{
		{"no bulk lane", func(ref string) bool { return ref != "control" }},
		{"no control lane", func(ref string) bool { return ref == "control" }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newServer()
			s.Self.BulkJoins = 3
			ts := newTestServer(t, s)
			c := newClient(ts.addr())
			c.Self.BulkJoins = 3
			c.Hook = func(at Step) error {
				for _, ref := range laneRefs(3) {
					if tt.fail(ref.String()) && at == forLane(stepDialLane, ref) {
						return errInjected
					}
				}
				return nil
			}
			client := c.handshake(t, ts.addr())
			requireAgreed(t, client, ts.outcome(t))
			require.Equal(t, conn.ModeSoftShared, client.res.Mode)
			require.Contains(t, client.res.Reason, "injected; soft-shared")
		})
	}
}
