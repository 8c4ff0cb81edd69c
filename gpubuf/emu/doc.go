// Package emu is an emulated GPU: a gpubuf.Device whose memory the host cannot
// touch. Tests and examples use it where there is no GPU, because it fails
// where a GPU would.
//
// # Usage
//
//	dev, err := emu.New(nil) // emu:0, 16 GiB
//	if err != nil {
//		return err
//	}
//	defer dev.Close()
//	pool, err := gpubuf.NewPool(gpubuf.Config{Device: dev})
//
// # Memory
//
// Device addresses are reserved address space without access, so that code
// which follows a device pointer (a checksum, a dump, a parser, writev) faults
// at once, at the line that did it. The bytes live in a memfd that is mapped a
// second time; CopyIn, CopyOut and Copy go through that mapping. They refuse
// ranges that do not lie inside one allocation, and overlapping ones.
//
// Memory is zeroed, aligned to 2 MiB, and takes pages of the host only where it
// was written. Each allocation holds one descriptor until it is freed: the
// memfd, sealed against resizing, so that memory can be shared with another
// process on the same host.
//
// # Background copies
//
// NewAsync makes a device that is a gpubuf.PinnedDevice too. Its background
// copies are late and out of order, by a seed, and take all bytes at their end;
// until then the destination of a copy out holds rubbish. Memory that is written,
// copied or freed under a copy which uses it is reported, by a panic unless
// AsyncConfig.Misuse says otherwise. The checks cost several times what the
// copies do.
//
// # Limitations
//
// There are no kernels, and without NewAsync no ordering to get wrong: a copy is
// done when it returns. Copies run at the speed of the host's memory; package
// gpubuf/faultdev makes them slow, and makes calls fail. Linux only; elsewhere
// New answers gpubuf.ErrNotSupported.
package emu
