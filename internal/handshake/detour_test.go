package handshake

import (
	"cmp"
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/gdrpc/gdrpc/conn"
	"github.com/stretchr/testify/require"
)

// TestDetour: joins that another server refuses go to the advertised addresses
// in turn, and stay with the first that works.
func TestDetour(t *testing.T) {
	tests := []struct {
		name      string
		advertise []string
		mode      conn.Mode
		dials     map[string]int
		reason    string
	}{
		{"first", []string{"here:1", "x:2"}, conn.ModeSoftJoined, map[string]int{"": 3, "here:1": 3}, ""},
		{"last", []string{"x:1", "x:2", "other:3", "here:4"}, conn.ModeSoftJoined, map[string]int{"": 3, "x:1": 1, "x:2": 1, "other:3": 1, "here:4": 3}, ""},
		{"none of them", []string{"x:1", "other:2"}, conn.ModeSoftShared, map[string]int{"x:1": 1, "other:2": 1},
			"no such session on this server; behind a load balancer, joins must reach the backend of the handshake; at the server's own address: "},
		{"junk", []string{"here", "here:0", "\x01:1"}, conn.ModeSoftShared, nil, "joins must reach the backend of the handshake; soft-shared"},
		{"too many", []string{"x:1", "x:2", "x:3", "x:4", "here:5"}, conn.ModeSoftShared, map[string]int{"x:1": 1, "x:2": 1, "x:3": 1, "x:4": 1}, "soft-shared"},
		{"not told", nil, conn.ModeSoftShared, nil, "joins refused: reading the server's Challenge: the server refuses the join: no such session on this server; behind a load balancer, joins must reach the backend of the handshake; soft-shared"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newServer()
			s.Self.BulkJoins, s.Self.Advertise = 2, tt.advertise
			ts, other := newTestServer(t, s), newTestServer(t, newServer())
			c := newClient(ts.addr())
			c.Self.BulkJoins = 2
			var mu sync.Mutex
			dials := make(map[string]int)
			c.DialJoin = func(ctx context.Context, direct string) (net.Conn, error) {
				mu.Lock()
				dials[direct]++
				mu.Unlock()
				host, _, _ := net.SplitHostPort(cmp.Or(direct, "other:0"))
				if host == "x" {
					return nil, errInjected
				}
				addr := map[string]string{"here": ts.addr(), "other": other.addr()}[host]
				return new(net.Dialer).DialContext(ctx, "tcp", addr)
			}
			client := c.handshake(t, ts.addr())
			requireAgreed(t, client, ts.outcome(t))
			require.Equal(t, tt.mode, client.res.Mode)
			require.Contains(t, client.res.Reason, tt.reason)
			if tt.mode != conn.ModeSoftJoined {
				delete(dials, "") // ended by the first that failed, or not
			}
			for addr, n := range dials {
				require.LessOrEqual(t, n, tt.dials[addr], "%q", addr)
			}
		})
	}
}

// TestDetourOnce: whoever comes second waits, and uses what was found or gives
// up.
func TestDetourOnce(t *testing.T) {
	for _, works := range []bool{true, false} {
		d := newDetour([]string{"a", "b"})
		inside, leave := make(chan struct{}), make(chan struct{})
		var wg sync.WaitGroup
		wg.Go(func() {
			err := d.take(t.Context(), func(_ context.Context, addr string) error {
				if addr == "a" {
					close(inside)
					<-leave
					return errInjected
				}
				return errorUnless(works)
			})
			require.Equal(t, works, err == nil)
		})
		<-inside
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, d.take(ended, nil), context.Canceled)
		var tried []string
		wg.Go(func() {
			err := d.take(t.Context(), func(_ context.Context, addr string) error {
				tried = append(tried, addr)
				return nil
			})
			require.Equal(t, works, err == nil)
		})
		close(leave)
		wg.Wait()
		if works {
			require.Equal(t, []string{"b"}, tried)
		} else {
			require.Empty(t, tried)
		}
	}
}

func errorUnless(ok bool) error {
	if ok {
		return nil
	}
	return errors.New("no")
}

// TestDetourTime: no address can use up the time of the others.
func TestDetourTime(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	left := []time.Duration{15 * time.Minute, 20 * time.Minute, 30 * time.Minute, time.Hour}
	err := newDetour([]string{"a", "b", "c", "d"}).take(ctx, func(ctx context.Context, _ string) error {
		end, ok := ctx.Deadline()
		require.True(t, ok)
		require.InDelta(t, left[0], time.Until(end), float64(time.Minute))
		left = left[1:]
		return errInjected
	})
	require.ErrorIs(t, err, errInjected)
	require.Empty(t, left)
}
