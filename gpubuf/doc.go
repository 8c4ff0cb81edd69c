// Package gpubuf hands out device memory: reference-counted slices that a Pool
// cuts from registered-once regions of a Device.
//
// A Device is the seam to a kind of memory: gpubuf/host is ordinary host
// memory, gpubuf/emu an emulated GPU whose memory the host cannot touch,
// gpubuf/cuda an NVIDIA GPU. gpubuf/gpubuftest checks that an implementation
// keeps the contract.
//
// # Usage
//
//	dev := host.New()
//	defer dev.Close()
//	pool, err := gpubuf.NewPool(gpubuf.Config{Device: dev, Limit: 1 << 30})
//	if err != nil {
//		return err
//	}
//	defer pool.Close()
//
//	s, err := pool.Alloc(ctx, 64<<20)
//	if err != nil {
//		return err
//	}
//	defer s.Free()
//	err = s.CopyIn(0, data)
//
// # Memory
//
// A Pool takes regions from its device, whole multiples of 2 MiB, when they are
// needed, and cuts contiguous extents from them, aligned to 256 bytes. Regions
// that fall empty are kept: registering one with a NIC costs milliseconds, and
// what uses it again costs nothing. An empty region is released only to make
// room for one of another size, when the device has no more, and by Close.
// Region.OnRelease undoes registrations before that.
//
// Whoever gets a *Slice frees it, exactly once. Ref, TryRef and Sub make new
// handles that are freed on their own; the bytes go back to the pool with the
// last one. Nothing that needs Free accompanies an error. Memory named by a
// posted work request stays the hardware's until its completion: keep a handle
// until then.
//
// Memory of other owners, a tensor of an engine or a file's mapping, becomes a
// slice by Wrap, without a copy, and is the owner's again when Wrap's event says
// so; a Tenure lets what NICs register for it outlive that. After says when the bytes of a slice may be read or written, FreeAfter when
// they are needed no more, for work that the program has under way on the device.
//
// A Slice is never a []byte, because the host may not touch device memory.
// CopyIn, CopyOut and CopyTo move bytes; HostBytes is for host memory alone.
//
// # Waiting
//
// When a pool is full, requests wait, first come first served, until their
// context ends or Config.MaxWait is over. A large request is not overtaken by
// small ones, and one that waits holds nothing. Requests marked as replies go
// before the others and have Config.ReplyReserve for themselves, so that calls
// which hold memory can end while new ones wait for it. A device that refuses
// memory is treated like a full pool, and is asked again from time to time.
//
// # Concurrency
//
// Everything may be called from any goroutine. No lock is held while a device,
// a function given to OnRelease, or a waiter is called. What the package does
// not do is order accesses to the bytes: writers and readers of the same bytes
// agree among themselves.
//
// # Errors
//
// Sentinels are matched with errors.Is; a request that cannot be met fails with
// a *PoolError that carries the pool's numbers. Using a slice after Free is a
// mistake in the program and panics.
//
// # Limitations
//
// A reply larger than the reserve competes with other requests, ahead of them; a
// pool that replies alone keep full makes other requests wait until MaxWait. Sizes are rounded up to 256 bytes, regions to
// 2 MiB, so very many tiny slices waste some. CopyTo between two devices that
// are not host memory goes through one pageable host block of 1 MiB, without
// overlap of the two copies. A region is never moved or compacted. Regions are
// looked through one after the other: keep Limit/RegionSize to some hundreds.
package gpubuf
