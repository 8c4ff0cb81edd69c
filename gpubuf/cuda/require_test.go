package cuda

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// missing skips the test because a requirement is missing, and says how to meet
// it; it fails the test if GDR_TEST_REQUIRE, a list with commas, names it.
func missing(t testing.TB, requirement string, err error, fix string) {
	t.Helper()
	const skip = "%s is missing: %v; %s"
	if slices.Contains(strings.Split(os.Getenv("GDR_TEST_REQUIRE"), ","), requirement) {
		t.Fatalf(skip, requirement, err, fix)
	}
	t.Skipf(skip, requirement, err, fix)
}

// requireGPU skips the test where there is no GPU, and returns those there are.
func requireGPU(t testing.TB) []Info {
	t.Helper()
	gpus, err := List(nil)
	if err != nil {
		missing(t, "cuda", err, "run it on a machine with an NVIDIA GPU and its driver, built with cgo")
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
