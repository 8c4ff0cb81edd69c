// Package skip lets tests skip for want of something that the machine lacks, and
// lets whoever runs them rule that out.
package skip

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// Missing skips the test because a requirement is missing, and says how to meet
// it; it fails the test if GDR_TEST_REQUIRE, a list with commas, names the
// requirement. docs/testing.md has the names.
func Missing(t testing.TB, requirement string, err error, fix string) {
	t.Helper()
	const text = "%s is missing: %v; %s"
	if slices.Contains(strings.Split(os.Getenv("GDR_TEST_REQUIRE"), ","), requirement) {
		t.Fatalf(text, requirement, err, fix)
	}
	t.Skipf(text, requirement, err, fix)
}
