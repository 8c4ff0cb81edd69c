package gpu

import (
	"bytes"
	"context"
	"fmt"

	"github.com/gdrpc/gdrpc/gpubuf"
)

const (
	// margin is what lies before and behind a frame's inner slice: odd, so
	// that nothing in it is aligned.
	margin = 257
	filler = 0xa5
)

// frame is a slice with neighbours that nobody may touch.
type frame struct {
	whole, inner *gpubuf.Slice
}

// newFrame makes a frame around n bytes, which are undefined.
func newFrame(ctx context.Context, pool *gpubuf.Pool, n int64) (*frame, error) {
	whole, err := pool.Alloc(ctx, n+2*margin)
	if err != nil {
		return nil, err
	}
	inner, err := whole.Sub(margin, n)
	if err != nil {
		whole.Free()
		return nil, err
	}
	f := &frame{whole: whole, inner: inner}
	for _, off := range []int64{0, margin + n} {
		if err := whole.CopyIn(off, bytes.Repeat([]byte{filler}, margin)); err != nil {
			f.free()
			return nil, err
		}
	}
	return f, nil
}

// check fails if a neighbour is not what it was.
func (f *frame) check() error {
	for _, off := range []int64{0, margin + f.inner.Len()} {
		b := make([]byte, margin)
		if err := f.whole.CopyOut(b, off); err != nil {
			return err
		}
		for i, x := range b {
			if x != filler {
				return fmt.Errorf("the byte at %d, outside of the %d bytes from %d on, was written", off+int64(i), f.inner.Len(), margin)
			}
		}
	}
	return nil
}

func (f *frame) free() {
	f.inner.Free()
	f.whole.Free()
}
