package gpubuf_test

import (
	"context"
	"testing"

	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/gpubuf/emu"
	"github.com/gdrpc/gdrpc/gpubuf/host"
	"github.com/stretchr/testify/require"
)

func benchPool(b *testing.B, d gpubuf.Device) *gpubuf.Pool {
	b.Helper()
	p, err := gpubuf.NewPool(gpubuf.Config{Device: d, Limit: 1 << 30})
	require.NoError(b, err)
	b.Cleanup(func() {
		require.NoError(b, p.Close())
		require.NoError(b, d.Close())
	})
	return p
}

func benchEmu(b *testing.B) gpubuf.Device {
	b.Helper()
	d, err := emu.New(nil)
	require.NoError(b, err)
	return d
}

func BenchmarkAllocFree(b *testing.B) {
	ctx := context.Background()
	for _, bc := range []struct {
		name string
		held int // slices that fragment the pool meanwhile
	}{{"empty", 0}, {"fragmented", 10_000}} {
		b.Run("device=host/"+bc.name, func(b *testing.B) {
			p := benchPool(b, host.New())
			var held []*gpubuf.Slice
			for i := range 2 * bc.held {
				s, err := p.Alloc(ctx, int64(1+i%37)*1024)
				require.NoError(b, err)
				if i%2 == 0 {
					defer s.Free()
				} else {
					held = append(held, s)
				}
			}
			for _, s := range held {
				s.Free()
			}
			b.ReportAllocs()
			for b.Loop() {
				s, err := p.Alloc(ctx, 64<<10)
				if err != nil {
					b.Fatal(err)
				}
				s.Free()
			}
		})
	}
}

func BenchmarkAllocFreeParallel(b *testing.B) {
	p := benchPool(b, host.New())
	ctx := context.Background()
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			s, err := p.Alloc(ctx, 64<<10)
			if err != nil {
				b.Error(err)
				return
			}
			s.Free()
		}
	})
}

func BenchmarkAllocAll(b *testing.B) {
	p := benchPool(b, host.New())
	ctx := context.Background()
	r := gpubuf.AllocRequest{Sizes: []int64{64 << 10, 1 << 20, 4096}}
	b.ReportAllocs()
	for b.Loop() {
		all, err := p.AllocAll(ctx, r)
		if err != nil {
			b.Fatal(err)
		}
		for _, s := range all {
			s.Free()
		}
	}
}

func BenchmarkRef(b *testing.B) {
	p := benchPool(b, host.New())
	s, err := p.Alloc(context.Background(), 4096)
	require.NoError(b, err)
	defer s.Free()
	b.ReportAllocs()
	for b.Loop() {
		s.Ref().Free()
	}
}

const copySize = 64 << 20

func BenchmarkCopy64MiB(b *testing.B) {
	src := make([]byte, copySize)
	b.Run("plain copy", func(b *testing.B) {
		dst := make([]byte, copySize)
		b.SetBytes(copySize)
		for b.Loop() {
			copy(dst, src)
		}
	})
	for _, d := range []gpubuf.Device{benchEmu(b), host.New()} {
		p := benchPool(b, d)
		s, err := p.Alloc(context.Background(), copySize)
		require.NoError(b, err)
		defer s.Free()
		b.Run("device="+d.Name()+"/in", func(b *testing.B) { benchCopy(b, func() error { return s.CopyIn(0, src) }) })
		b.Run("device="+d.Name()+"/out", func(b *testing.B) { benchCopy(b, func() error { return s.CopyOut(src, 0) }) })
	}
}

func benchCopy(b *testing.B, f func() error) {
	b.SetBytes(copySize)
	for b.Loop() {
		if err := f(); err != nil {
			b.Fatal(err)
		}
	}
}
