package dialer

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestMarks(t *testing.T) {
	now := time.Unix(1000, 0)
	m := marks{ttl: time.Second, now: func() time.Time { return now }}
	require.Empty(t, m.find("a"))
	m.set("a", "so")
	require.Equal(t, "so", m.find("a"))
	require.Empty(t, m.find("b"))
	now = now.Add(time.Second)
	require.Empty(t, m.find("a"))
	require.Empty(t, m.until)
}

func TestMarksBounded(t *testing.T) {
	now := time.Unix(1000, 0)
	m := marks{ttl: time.Second, now: func() time.Time { return now }}
	for i := range maxMarks + 1 {
		m.set(fmt.Sprint(i), "so")
	}
	require.Len(t, m.until, 1, "all were valid: all go")
	now = now.Add(time.Second / 2)
	for i := range maxMarks - 1 {
		m.set(fmt.Sprint("x", i), "so")
	}
	now = now.Add(time.Second / 2)
	m.set("y", "so")
	require.Len(t, m.until, maxMarks, "the one that is over went")
}

func TestMarksOff(t *testing.T) {
	m := marks{ttl: -1}
	m.set("a", "so")
	require.Empty(t, m.find("a"))
}
