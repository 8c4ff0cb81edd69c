package rig

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/internal/leak"
	"github.com/stretchr/testify/require"
)

// Baseline is what this process holds at a quiet moment.
type Baseline struct {
	pools []*gpubuf.Pool
	held  Holdings
}

// Holdings are numbers of what can leak.
type Holdings struct {
	Used       int64 // bytes of the pools
	Slices     int   // of the pools
	Objects    int   // slices, also those inside gdrpc, verbs objects and memory of peers
	Sockets    int   // descriptors that are sockets or completion channels
	Goroutines int
}

// ofConnections are the kinds of objects, by their names in package leak, that a
// connection has and nothing keeps for the next one. Pools keep their regions,
// and Domains the registrations of those.
var ofConnections = []string{"gpubuf.Slice", "soft.Wire", "soft.CompChannel", "soft.CQ", "soft.QP", "verbs.CompChannel", "verbs.CQ", "verbs.QP", "host.View"}

// Measure takes the baseline once nothing changes any more.
func Measure(t testing.TB, pools ...*gpubuf.Pool) *Baseline {
	t.Helper()
	b := &Baseline{pools: pools, held: hold(pools)}
	same := 0
	require.True(t, Eventually(func() bool {
		now := hold(pools)
		if same++; now != b.held {
			b.held, same = now, 0
		}
		return same == 20
	}), "the process does not become quiet")
	return b
}

// Require waits until the process holds no more than at the baseline.
func (b *Baseline) Require(t testing.TB, format string, args ...any) {
	t.Helper()
	var now Holdings
	if Eventually(func() bool { now = hold(b.pools); return now.within(b.held) }) {
		return
	}
	stacks := make([]byte, 1<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	t.Fatalf("%s: held %+v, at the baseline %+v\n%s", fmt.Sprintf(format, args...), now, b.held, stacks)
}

func (h Holdings) within(limit Holdings) bool {
	return h.Used <= limit.Used && h.Slices <= limit.Slices && h.Objects <= limit.Objects &&
		h.Sockets <= limit.Sockets && h.Goroutines <= limit.Goroutines
}

func hold(pools []*gpubuf.Pool) Holdings {
	h := Holdings{Sockets: Sockets(), Goroutines: runtime.NumGoroutine()}
	for _, kind := range ofConnections {
		h.Objects += leak.Count(kind)
	}
	// An RDMA device is open as long as the Domain of a dialer, with two descriptors
	// and two goroutines for its events.
	devices := leak.Count("verbs.Context")
	h.Sockets -= 2 * devices
	h.Goroutines -= 2 * devices
	for _, p := range pools {
		st := p.Stats()
		h.Used += st.Used
		h.Slices += st.Slices
	}
	return h
}

// Sockets is the number of sockets and completion channels of RDMA devices that
// this process has open.
func Sockets() (n int) {
	entries, _ := os.ReadDir("/proc/self/fd") // none: not Linux
	for _, e := range entries {
		if target, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && (strings.HasPrefix(target, "socket:") || strings.HasSuffix(target, "[infinibandevent]")) {
			n++
		}
	}
	return n
}

// deadline is when a process is late with what it has to say.
func deadline() time.Time { return time.Now().Add(Patience) }
