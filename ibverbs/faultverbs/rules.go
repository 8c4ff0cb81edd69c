package faultverbs

import (
	"math/rand/v2"
	"time"

	"github.com/gdrpc/gdrpc/ibverbs"
)

// Nth refuses the n-th call of op, counted from 1 over the whole device, with
// err, or ErrOutOfMemory if err is nil.
func Nth(op Op, n int, err error) func(Call) error {
	if err == nil {
		err = ibverbs.ErrOutOfMemory
	}
	return func(c Call) error {
		if c.Op == op && c.N == n {
			return err
		}
		return nil
	}
}

// FirstOf asks rules in order until one refuses.
func FirstOf(rules ...func(Call) error) func(Call) error {
	return func(c Call) error {
		for _, rule := range rules {
			if err := rule(c); err != nil {
				return err
			}
		}
		return nil
	}
}

// HoldSends holds the completions of sends for d: a peer's answer that takes
// less comes before them.
func HoldSends(d time.Duration) func(Completion) time.Duration {
	return holdIf(d, func(c Completion) bool { return !c.Recv })
}

// HoldRecvs holds the completions of receives for d: those of sends come before
// the peer's answer.
func HoldRecvs(d time.Duration) func(Completion) time.Duration {
	return holdIf(d, func(c Completion) bool { return c.Recv })
}

// HoldFlushes holds the completions of flushed requests for d, or Never.
func HoldFlushes(d time.Duration) func(Completion) time.Duration {
	return holdIf(d, func(c Completion) bool { return c.Status == ibverbs.WCWRFlushErr })
}

func holdIf(d time.Duration, cond func(Completion) bool) func(Completion) time.Duration {
	return func(c Completion) time.Duration {
		if cond(c) {
			return d
		}
		return 0
	}
}

// Longest holds a completion as long as the longest of holds says, Never being
// the longest of all.
func Longest(holds ...func(Completion) time.Duration) func(Completion) time.Duration {
	return func(c Completion) time.Duration {
		var longest time.Duration
		for _, hold := range holds {
			d := hold(c)
			if d < 0 {
				return Never
			}
			longest = max(longest, d)
		}
		return longest
	}
}

// Random returns a script of everything that hardware may do to a program that
// is in the right: completions and events up to most late, short polls,
// spurious events and junk in invalid fields. What becomes of the n-th
// completion of a queue depends on the seed, the queue pair's place in the
// order of creation and n, not on the order in which goroutines run. Tests that
// use it log the seed.
func Random(seed uint64, most time.Duration) *Script {
	draw := func(salt, a, b int) *rand.Rand {
		return rand.New(rand.NewPCG(seed, uint64(salt)<<56^uint64(a)<<28^uint64(b)))
	}
	late := func(r *rand.Rand) time.Duration {
		if most <= 0 || r.IntN(4) == 0 { // some are not late at all
			return 0
		}
		return time.Duration(r.Int64N(int64(most)))
	}
	queue := func(c Completion) int {
		if c.Recv {
			return 2*c.QP + 1
		}
		return 2 * c.QP
	}
	return &Script{
		Hold:       func(c Completion) time.Duration { return late(draw(1, queue(c), c.N)) },
		Spurious:   func(e Event) bool { return draw(2, e.CQ, e.N).IntN(8) == 0 },
		EventDelay: func(e Event) time.Duration { return late(draw(3, e.CQ, e.N)) },
		MaxPoll:    1 + draw(4, 0, 0).IntN(4),
		Junk:       seed | 1,
	}
}
