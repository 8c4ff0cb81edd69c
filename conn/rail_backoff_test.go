package conn

import (
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestRailBackOff: each failure of a pair keeps it away for twice as long, for all
// connections; others, and what stands, are not touched.
func TestRailBackOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b railBackOff
		peer := netip.MustParseAddr("10.0.0.2")
		a, other := railPair{peer, new(nic)}, railPair{netip.MustParseAddr("10.0.0.3"), new(nic)}
		for _, want := range []time.Duration{10, 20, 40, 80, 160, 300, 300} {
			require.True(t, b.may(a))
			wait := b.fail(a)
			require.Equal(t, want*time.Second, wait)
			time.Sleep(wait - time.Nanosecond)
			require.False(t, b.may(a))
			require.True(t, b.may(other))
			time.Sleep(time.Nanosecond)
		}
		b.stands(a)
		require.Equal(t, railWait, b.fail(a))
		for range 2 * railFailures {
			b.fail(railPair{peer, new(nic)})
			time.Sleep(time.Second)
		}
		require.LessOrEqual(t, len(b.failed), railFailures)
	})
}
