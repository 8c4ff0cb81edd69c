// Package faultdev wraps a gpubuf.Device so that things go wrong as a script
// has it: for tests of what keeps slices in a device's memory.
//
// # Usage
//
//	d, err := emu.New(nil)
//	if err != nil {
//		return err
//	}
//	dev := faultdev.Wrap(d, &faultdev.Script{
//		Refuse:    faultdev.Nth(faultdev.OpCopyIn, 3, nil),
//		Bandwidth: 1 << 30,
//	})
//	pool, err := gpubuf.NewPool(gpubuf.Config{Device: dev})
//
// A Script refuses allocations and copies, the n-th or those that meet a range
// of addresses, and makes copies slow. Device.Lose has everything fail from
// then on, in the middle of a copy too. WrapPinned does the same for a device with
// background copies, which it delays and fails at their start or their end.
//
// # Determinism
//
// Copies share one engine, which serves them in the order in which they come.
// Under testing/synctest the time that one takes is exact.
//
// # Memory
//
// A refused copy has touched nothing. A slow one moves its bytes at its end, so
// that memory which was given back too early shows. Memory of a lost device is
// given back to the device below by Free, although Free tells that it failed.
//
// # Concurrency
//
// Every method may be called from any goroutine. The functions of a script are
// called one at a time.
//
// # Limitations
//
// Host memory is reached through Memory.HostBytes without the wrapper.
package faultdev
