// Package faultverbs wraps an ibverbs provider so that things go wrong as a
// script has it: for tests of what stands on a provider.
//
// # Usage
//
//	dev := faultverbs.Wrap(soft.NewDevice(nil), &faultverbs.Script{
//		Refuse: faultverbs.Nth(faultverbs.OpCreateQP, 2, nil),
//		Hold:   faultverbs.HoldSends(time.Millisecond),
//		Junk:   1,
//	})
//
// A Script refuses calls, holds completions back, batches and reorders them
// across queues, makes events spurious or late, fills invalid fields with junk
// and makes queues small. It does what hardware or a driver may do to a program
// that keeps the rules: the order within each queue is kept, an event that is
// owed comes, and nothing is invented. Random is a script of all of it at once
// that a program in the right must not notice.
//
// To refuse every step in turn, run once without faults, read Device.Calls, and
// then once for each call of each of SetupOps.
//
// # Determinism
//
// A script sees places in an order (the second queue pair, its fifth send
// completion), never addresses or time, so that the same script does the same
// to the same program. Under testing/synctest its delays are exact.
//
// # Differences from the provider below
//
// A request keeps its slot until its completion, or a later one of the same
// queue, has been polled, as on hardware, and queues are exactly as deep as was
// asked for. Completions that a destroyed queue pair had not shown never come.
// A queue pair is passed to soft.Wire.Attach as it is.
//
// # Concurrency
//
// Every method may be called from any goroutine. A CompChannel has a goroutine
// of its own until it is closed.
//
// # Limitations
//
// A hold counts from when the wrapper learns of the completion, which is when
// the caller polls or is armed. A queue below overruns only while nobody polls
// or is armed. The wrapper allocates for each request.
package faultverbs
