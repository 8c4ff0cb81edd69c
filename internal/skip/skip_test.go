package skip

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gdrpc/gdrpc/internal/leak/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// noted is a test that goes on after it was skipped or failed.
type noted struct {
	testing.TB
	said string
}

func (n *noted) Helper()                     {}
func (n *noted) Skipf(f string, args ...any) { n.said += "skip: " + fmt.Sprintf(f, args...) + "\n" }
func (n *noted) Fatalf(f string, args ...any) {
	n.said += "fail: " + fmt.Sprintf(f, args...) + "\n"
}

func TestMissing(t *testing.T) {
	tests := []struct{ required, first string }{
		{"", "skip"},
		{"cc", "skip"},
		{"verbs2", "skip"},
		{"verbs", "fail"},
		{"cc,verbs", "fail"},
	}
	for _, tt := range tests {
		t.Run(tt.required, func(t *testing.T) {
			t.Setenv("GDR_TEST_REQUIRE", tt.required)
			n := &noted{TB: t}
			Missing(n, "verbs", errors.New("no device"), "find one")
			require.Regexp(t, "^"+tt.first+": verbs is missing: no device; find one\n", n.said)
		})
	}
}
