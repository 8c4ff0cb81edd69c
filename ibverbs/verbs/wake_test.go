package verbs

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestEventTime: what a wake-up costs is measured once, and is the same for all
// devices.
func TestEventTime(t *testing.T) {
	first := new(Device).EventTime()
	require.Positive(t, first)
	require.Less(t, first, time.Second)
	require.Equal(t, first, new(Device).EventTime())
	require.Positive(t, measureWake())
}
