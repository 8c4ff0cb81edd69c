package faultverbs

import (
	"testing"
	"time"

	"github.com/gdrpc/gdrpc/ibverbs"
	"github.com/gdrpc/gdrpc/ibverbs/ibverbstest"
	"github.com/gdrpc/gdrpc/ibverbs/soft"
	"github.com/stretchr/testify/require"
)

// countsEvents are the tests that spurious events disturb.
var countsEvents = map[string]string{
	"Notify":           "it counts events",
	"NotifyMissed":     "it counts events",
	"TwoCQsOneChannel": "it counts events",
}

// TestConformance checks that what a script may do to a program in the right
// stays within the promises of package ibverbs.
func TestConformance(t *testing.T) {
	const ms = time.Millisecond
	random := func(seed uint64) *Script { return Random(seed, 2*ms) }
	for _, tt := range []struct {
		name   string
		script *Script
		skip   map[string]string
	}{
		{"no faults", nil, nil},
		{"sends late", &Script{Hold: HoldSends(ms)}, nil},
		{"receives late", &Script{Hold: HoldRecvs(ms)}, nil},
		{"flushes late", &Script{Hold: HoldFlushes(5 * ms)}, nil},
		{"batches", &Script{Batch: 2 * ms, MaxPoll: 3}, nil},
		{"late events", &Script{EventDelay: func(Event) time.Duration { return ms }}, nil},
		{"junk", &Script{Junk: 7}, nil},
		{"spurious events", &Script{Spurious: func(e Event) bool { return e.N%2 == 1 }}, countsEvents},
		{"random 1", random(1), countsEvents},
		{"random 2", random(2), countsEvents},
		{"random 3", random(3), countsEvents},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ibverbstest.Run(t, func(t *testing.T) ibverbstest.Pair {
				p := newPair(t, tt.script, tt.script)
				p.Skip = tt.skip
				return p
			})
		})
	}
}

// newPair returns two devices with faults, joined by a wire in memory.
func newPair(t *testing.T, sa, sb *Script) ibverbstest.Pair {
	wa, wb := soft.Pipe()
	t.Cleanup(func() {
		require.NoError(t, wa.Close())
		require.NoError(t, wb.Close())
	})
	open := func(s *Script) ibverbs.Context {
		ctx, err := Wrap(soft.NewDevice(&soft.Config{MaxMsgSz: 8 << 20}), s).Open()
		require.NoError(t, err)
		return ctx
	}
	return ibverbstest.Pair{A: open(sa), B: open(sb), Link: func(a, b ibverbs.QP) error {
		if err := wa.Attach(a); err != nil {
			return err
		}
		return wb.Attach(b)
	}}
}
