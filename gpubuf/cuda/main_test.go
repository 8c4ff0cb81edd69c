package cuda

import (
	"os"
	"testing"

	"github.com/gdrpc/gdrpc/internal/leak/leaktest"
)

// TestMain runs the tests, or, in a process that a test started, that test's
// other half.
func TestMain(m *testing.M) {
	if role := os.Getenv(childEnv); role != "" {
		os.Exit(child(role))
	}
	leaktest.Main(m)
}
