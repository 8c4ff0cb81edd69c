package cuda

import (
	"testing"

	"github.com/gdrpc/gdrpc/internal/skip"
)

// requireGPU skips the test where there is no GPU, and returns those there are.
func requireGPU(t testing.TB) []Info {
	t.Helper()
	gpus, err := List(nil)
	if err != nil {
		skip.Missing(t, "cuda", err, "run it on a machine with an NVIDIA GPU and its driver, built with cgo")
	}
	return gpus
}

// onEach runs a test on a fake GPU and on a real one.
func onEach(t *testing.T, test func(t *testing.T, cfg Config)) {
	t.Helper()
	t.Run("fake", func(t *testing.T) { test(t, newFake(t, nil).config()) })
	t.Run("gpu", func(t *testing.T) {
		requireGPU(t)
		test(t, Config{})
	})
}
