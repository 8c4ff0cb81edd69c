package soft

import (
	"io"
	"net"
)

// Bounds of one write.
const (
	slabSize  = 4 << 10   // headers and small payloads
	smallMax  = 1 << 10   // payloads up to this size are copied, larger ones written in place
	directMax = 128 << 10 // bytes that a poster writes itself, if the stream takes them at once
	batchMax  = 256 << 10 // bytes, unless one message is larger; fragmentSize on shared wires
	piecesMax = 128       // slices of a vectored write
	naksMax   = 128       // so that one header and a small payload fit behind them
)

// batch is what one write hands to the stream: NAKs, then messages of one QP.
// Whoever runs the wire's pump owns it.
type batch struct {
	slab [slabSize]byte
	used int
	tail int // where the last piece starts if it lies in the slab, else -1

	pieces  [][]byte // what to write, in order
	rest    net.Buffers
	total   int // bytes in pieces
	written int
	shared  bool // queue pairs share the wire: be short

	ends   []int    // of each frame, counted in bytes from the start
	mrs    []*MR    // in use by pieces
	staged [][]byte // payload of the next message
	mark   int      // mrs before the staged ones
}

// reset empties b and keeps its storage. Nothing may be in use.
func (b *batch) reset() {
	b.used, b.tail, b.total, b.written, b.mark = 0, -1, 0, 0, 0
	b.pieces, b.ends, b.staged = b.pieces[:0], b.ends[:0], b.staged[:0]
	b.rest = nil
}

// fits reports whether a frame may join.
func (b *batch) fits(size, pieces int) bool {
	if len(b.ends) == 0 {
		return true
	}
	need := headerSize
	if size <= smallMax {
		need += size
	}
	most := batchMax
	if b.shared {
		most = fragmentSize
	}
	return b.used+need <= slabSize && b.total+size <= most && len(b.pieces)+pieces+1 <= piecesMax
}

// stage adds a piece of the next message's payload. mr is in use until release.
func (b *batch) stage(mem []byte, mr *MR) {
	b.mrs = append(b.mrs, mr)
	if len(mem) > 0 {
		b.staged = append(b.staged, mem)
	}
}

// unstage drops the staged payload.
func (b *batch) unstage() {
	releaseAll(b.mrs[b.mark:])
	b.mrs, b.staged = b.mrs[:b.mark], b.staged[:0]
}

// commit adds a frame: the header and the staged payload.
func (b *batch) commit(h *header) {
	b.putHeader(h)
	for _, mem := range b.staged {
		if h.length <= smallMax {
			b.copy(mem)
			continue
		}
		b.pieces = append(b.pieces, mem)
		b.total += len(mem)
		b.tail = -1
	}
	b.ends = append(b.ends, b.total)
	b.staged, b.mark = b.staged[:0], len(b.mrs)
}

// putHeader adds a header alone.
func (b *batch) putHeader(h *header) {
	var raw [headerSize]byte
	h.put(raw[:])
	b.copy(raw[:])
}

// copy adds bytes by way of the slab, where they join the piece before them.
func (b *batch) copy(p []byte) {
	n := copy(b.slab[b.used:], p)
	if b.tail < 0 {
		b.tail = b.used
		b.pieces = append(b.pieces, nil)
	}
	b.used += n
	b.total += n
	b.pieces[len(b.pieces)-1] = b.slab[b.tail:b.used]
}

// writeTo writes what is not written yet, in one system call where w can.
func (b *batch) writeTo(w io.Writer) error {
	b.rest = b.pieces
	b.skip(b.written) // by tryPump
	n, err := b.rest.WriteTo(w)
	b.written += int(n)
	if err == nil && b.written < b.total {
		err = io.ErrShortWrite
	}
	return err
}

// skip drops the first n bytes of rest.
func (b *batch) skip(n int) {
	for n > 0 {
		k := min(n, len(b.rest[0]))
		if b.rest[0] = b.rest[0][k:]; len(b.rest[0]) == 0 {
			b.rest = b.rest[1:]
		}
		n -= k
	}
}

// whole returns how many frames of messages were written to their ends.
func (b *batch) whole() int {
	n := 0
	for n < len(b.ends) && b.ends[n] <= b.written {
		n++
	}
	return n
}

// release gives the registered memory back.
func (b *batch) release() { b.mrs = releaseAll(b.mrs) }
