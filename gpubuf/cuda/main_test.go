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
	// The driver opens sockets and pipes with the first context, and keeps them
	// for good: they are there before the leak check looks. With a context kept
	// alive, tests on a GPU also take a tenth of the time; processes that tests
	// start see contexts come and go.
	_, _ = New(nil) // without a GPU there is nothing to keep
	leaktest.Main(m)
}
