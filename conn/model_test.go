package conn

import (
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// modelRuns is how many runs a plain go test does: a few seconds.
const modelRuns = 150

// TestModel has two sides offer and land at random while completions come late,
// sockets are slow and die, queue pairs of NICs die in every third run
// (model_fabric_test.go), and Conns close, and holds all of it to a ledger of
// who owns which memory (model_ledger_test.go), to virtual time, and to having
// everything back in the end.
//
// GDR_TEST_MODEL is the number of runs, GDR_TEST_SEED the seed of the first one.
// A seed gives the same plan again, but goroutines may be scheduled otherwise:
// GDR_TEST_SEED=N GDR_TEST_REPEAT=1000 tries one seed again and again.
func TestModel(t *testing.T) {
	first, runs := number(t, "GDR_TEST_SEED", 0), number(t, "GDR_TEST_MODEL", 0)
	repeat := number(t, "GDR_TEST_REPEAT", 1)
	if runs == 0 {
		if runs = modelRuns; first > 0 {
			runs = 1
		}
	}
	first = max(first, 1)
	for seed := first; seed < first+runs && !t.Failed(); seed++ {
		for range repeat {
			runSeed(t, seed)
		}
	}
}

func number(t *testing.T, name string, otherwise uint64) uint64 {
	s := os.Getenv(name)
	if s == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(s, 10, 64)
	require.NoError(t, err, name)
	return n
}

// modelHang is how long one run may take in real time.
const modelHang = time.Minute

func runSeed(t *testing.T, seed uint64) {
	name := fmt.Sprintf("seed %d", seed)
	debug.SetTraceback("all")
	hang := time.AfterFunc(modelHang, func() {
		panic(name + ": the run hangs: a goroutine waits for a lock for ever, or spins")
	})
	defer hang.Stop()
	t.Run(name, func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			plan := newModelPlan(seed)
			for _, f := range runModel(plan) {
				t.Errorf("GDR_TEST_SEED=%d: %s", seed, f)
			}
			if t.Failed() {
				t.Log(plan)
			}
		})
	})
}
