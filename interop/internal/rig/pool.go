package rig

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/gpubuf/emu"
	"github.com/gdrpc/gdrpc/gpubuf/host"
	"github.com/stretchr/testify/require"
)

// Patience is how long something may take that nothing is wrong with. Handshakes
// have it too: one that takes longer than it may goes on over TCP, or in plain.
const Patience = time.Minute

// NewPool makes a pool of an emulated GPU. It must be empty when the test ends.
func NewPool(t testing.TB, cfg gpubuf.Config) *gpubuf.Pool {
	t.Helper()
	gpu, err := emu.New(nil)
	require.NoError(t, err)
	cfg.Device = gpu
	return NewDevicePool(t, cfg)
}

// NewHostPool makes a pool of host memory. It must be empty when the test ends.
func NewHostPool(t testing.TB, cfg gpubuf.Config) *gpubuf.Pool {
	t.Helper()
	cfg.Device = host.New()
	return NewDevicePool(t, cfg)
}

// NewDevicePool makes a pool of a device, which it owns. It must be empty when
// the test ends.
func NewDevicePool(t testing.TB, cfg gpubuf.Config) *gpubuf.Pool {
	t.Helper()
	pool, err := gpubuf.NewPool(cfg)
	require.NoError(t, err)
	t.Cleanup(func() {
		var err error
		if !Eventually(func() bool { err = pool.Close(); return err == nil }) {
			require.NoError(t, err, "the pool does not fall empty")
		}
		// A Conn that is closed has its peer's memory open a moment longer.
		if !Eventually(func() bool { err = cfg.Device.Close(); return err == nil }) {
			require.NoError(t, err, "memory of the device is left")
		}
	})
	return pool
}

// Context ends with the test, or before the test binary does.
func Context(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 2*Patience)
	t.Cleanup(cancel)
	return ctx
}

// Quiet is a logger that keeps the tests' output readable.
func Quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// Eventually waits for what other goroutines or processes bring about and
// nothing tells of. It reports whether it came.
func Eventually(condition func() bool) bool {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(Patience); !condition(); <-tick.C {
		if time.Now().After(end) {
			return false
		}
	}
	return true
}
