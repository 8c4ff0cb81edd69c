package rig

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"

	"github.com/gdrpc/gdrpc/gpubuf"
)

// Payload stands for bytes that both ends can make and check on their own.
type Payload struct {
	Size int64
	Seed uint64
}

// blockSize is how many bytes of a payload differ from the next ones only in
// their number, which makes them cheap to make.
const blockSize = 4096

// Bytes makes the payload's bytes. No two places in it are alike, so that a
// chunk in the place of another one shows.
func (p Payload) Bytes() []byte {
	b := make([]byte, p.Size)
	var block [blockSize]byte
	x := p.Seed*0x9E3779B97F4A7C15 + 0x632BE59BD9B4E019
	for i := 0; i < blockSize; i += 8 {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		binary.LittleEndian.PutUint64(block[i:], x)
	}
	for i := 0; i < len(b); i += blockSize {
		binary.LittleEndian.PutUint64(block[:], x+uint64(i))
		copy(b[i:], block[:])
	}
	return b
}

// Sum is what Sum makes of the payload's bytes.
func (p Payload) Sum() string { return Sum(p.Bytes()) }

// Slice puts the payload into new memory of pool, which the caller frees.
func (p Payload) Slice(ctx context.Context, pool *gpubuf.Pool) (*gpubuf.Slice, error) {
	s, err := pool.Alloc(ctx, p.Size)
	if err != nil {
		return nil, err
	}
	if err := s.CopyIn(0, p.Bytes()); err != nil {
		s.Free()
		return nil, err
	}
	return s, nil
}

// Slices makes a slice of every payload, or of none.
func Slices(ctx context.Context, pool *gpubuf.Pool, list []Payload) ([]*gpubuf.Slice, error) {
	var slices []*gpubuf.Slice
	for _, p := range list {
		s, err := p.Slice(ctx, pool)
		if err != nil {
			FreeAll(slices)
			return nil, err
		}
		slices = append(slices, s)
	}
	return slices, nil
}

// FreeAll frees every slice.
func FreeAll(slices []*gpubuf.Slice) {
	for _, s := range slices {
		s.Free()
	}
}

// Sum is the SHA-256 of b in hexadecimal digits.
func Sum(b []byte) string {
	h := sha256.Sum256(b)
	return hex.EncodeToString(h[:])
}

// SumOf is the Sum of the bytes in a slice.
func SumOf(s *gpubuf.Slice) (string, error) {
	b := make([]byte, s.Len())
	if err := s.CopyOut(b, 0); err != nil {
		return "", err
	}
	return Sum(b), nil
}

// Series are payloads of the sizes, whose seeds count up from seed.
func Series(seed uint64, sizes ...int64) []Payload {
	list := make([]Payload, len(sizes))
	for i, n := range sizes {
		list[i] = Payload{Size: n, Seed: seed + uint64(i)}
	}
	return list
}
