package rig

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Number is an environment variable's number, or a default.
func Number(t testing.TB, name string, byDefault int) int {
	t.Helper()
	s := os.Getenv(name)
	if s == "" {
		return byDefault
	}
	n, err := strconv.Atoi(s)
	require.NoError(t, err, name)
	return n
}

// Duration is an environment variable's duration, such as 60s, or a default.
func Duration(t testing.TB, name string, byDefault time.Duration) time.Duration {
	t.Helper()
	s := os.Getenv(name)
	if s == "" {
		return byDefault
	}
	d, err := time.ParseDuration(s)
	require.NoError(t, err, name)
	return d
}

// Random returns the dice of one round. GDR_TEST_SEED changes all of them.
func Random(t testing.TB, round int) *rand.Rand {
	t.Helper()
	return rand.New(rand.NewPCG(uint64(Number(t, "GDR_TEST_SEED", 1)), uint64(round)))
}
