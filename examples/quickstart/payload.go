package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"os"

	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/gpubuf/emu"
	"github.com/gdrpc/gdrpc/gpubuf/named"
)

// blockSize is how much of a file or slice is in host memory at a time.
const blockSize = 4 << 20

// poolLimit is the pool that a side needs for a file: the file twice, and room
// for the part that pools keep for replies, in pieces of 2 MiB.
func poolLimit(size int64) int64 { return (3*size + 256<<20) &^ (2<<20 - 1) }

// emulated is the device that every machine has.
const emulated = "emu:0"

// openDevice opens a GPU. An emulated one is as large as it needs to be.
func openDevice(name string, limit int64) (gpubuf.Device, error) {
	if name == emulated || name == "emu" { // which are one device
		return emu.New(&emu.Config{Memory: limit + 256<<20})
	}
	return named.Open(name)
}

// newPool makes a pool on a device.
func newPool(device string, limit int64) (*gpubuf.Pool, func(), error) {
	dev, err := openDevice(device, limit)
	if err != nil {
		return nil, nil, err
	}
	pool, err := gpubuf.NewPool(gpubuf.Config{Device: dev, Limit: limit})
	if err != nil {
		dev.Close()
		return nil, nil, err
	}
	return pool, func() { pool.Close(); dev.Close() }, nil
}

// openPayload opens the file to send and says how long it is.
func openPayload(path string) (*os.File, int64, error) {
	info, err := os.Stat(path) // before Open, which waits where path is a pipe
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a regular file (%v)", path, info.Mode())
	}
	if err != nil {
		return nil, 0, err
	}
	f, err := os.Open(path)
	return f, info.Size(), err
}

// load copies the file to device memory, a block at a time, and returns its
// SHA-256. The caller frees the slice.
func load(ctx context.Context, pool *gpubuf.Pool, f io.Reader, size int64, p *progress) (*gpubuf.Slice, []byte, error) {
	s, err := pool.Alloc(ctx, size)
	if err != nil {
		return nil, nil, err
	}
	h := sha256.New()
	buf := make([]byte, min(blockSize, size))
	for off := int64(0); off < size; off += int64(len(buf)) {
		buf = buf[:min(int64(len(buf)), size-off)]
		if _, err = io.ReadFull(f, buf); err == nil {
			err = s.CopyIn(off, buf)
		}
		if err != nil {
			s.Free()
			return nil, nil, fmt.Errorf("load the file at byte %d: %w", off, err)
		}
		h.Write(buf)
		p.add(int64(len(buf)))
	}
	return s, h.Sum(nil), nil
}

// digest returns the SHA-256 of a slice, copied out of device memory a block at
// a time.
func digest(s *gpubuf.Slice) ([]byte, error) {
	h := sha256.New()
	buf := make([]byte, min(blockSize, s.Len()))
	for off := int64(0); off < s.Len(); off += int64(len(buf)) {
		buf = buf[:min(int64(len(buf)), s.Len()-off)]
		if err := s.CopyOut(buf, off); err != nil {
			return nil, err
		}
		h.Write(buf)
	}
	return h.Sum(nil), nil
}
