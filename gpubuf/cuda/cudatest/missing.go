package cudatest

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// Missing skips the test because a requirement is missing, and says how to meet
// it; it fails the test if GDR_TEST_REQUIRE, a list with commas, names it.
func Missing(t testing.TB, requirement string, err error, fix string) {
	t.Helper()
	const skip = "%s is missing: %v; %s"
	if slices.Contains(strings.Split(os.Getenv("GDR_TEST_REQUIRE"), ","), requirement) {
		t.Fatalf(skip, requirement, err, fix)
	}
	t.Skipf(skip, requirement, err, fix)
}
