package verbs

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/gdrpc/gdrpc/internal/leak/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// missing skips the test because a requirement is missing, and says how to meet
// it; it fails the test if GDR_TEST_REQUIRE, a list with commas, names the
// requirement.
func missing(t testing.TB, requirement string, err error, fix string) {
	t.Helper()
	const skip = "%s is missing: %v; %s"
	if slices.Contains(strings.Split(os.Getenv("GDR_TEST_REQUIRE"), ","), requirement) {
		t.Fatalf(skip, requirement, err, fix)
	}
	t.Skipf(skip, requirement, err, fix)
}
