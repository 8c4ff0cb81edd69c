package rdma

import (
	"testing"
	"time"

	"github.com/gdrpc/gdrpc/interop/internal/rig"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestIdle: connections over queue pairs on which nothing happens take no CPU
// time.
func TestIdle(t *testing.T) {
	const conns, period = 4, 2 * time.Second
	n := rig.RequireNIC(t)
	for range conns {
		greeted(t, n)
	}
	settled := func() bool { return cpu(t, 100*time.Millisecond) < 5*time.Millisecond }
	require.True(t, rig.Eventually(settled), "the process does not come to rest")
	used := cpu(t, period)
	t.Logf("%v of CPU time in %v with %d connections", used, period, conns)
	require.Less(t, used, period/50)
}

// cpu is the CPU time that this process uses in a period.
func cpu(t *testing.T, period time.Duration) time.Duration {
	t.Helper()
	before := cpuSoFar(t)
	<-time.After(period) // the period of a measurement: nothing is waited for
	return cpuSoFar(t) - before
}

func cpuSoFar(t *testing.T) time.Duration {
	t.Helper()
	var u unix.Rusage
	require.NoError(t, unix.Getrusage(unix.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
