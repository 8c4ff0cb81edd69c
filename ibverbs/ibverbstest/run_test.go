package ibverbstest

import (
	"testing"

	"github.com/gdrpc/gdrpc/ibverbs"
	"github.com/gdrpc/gdrpc/ibverbs/soft"
	"github.com/gdrpc/gdrpc/internal/leak/leaktest"
	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// TestRunOneDevice runs the suite with both ends in one context.
func TestRunOneDevice(t *testing.T) {
	Run(t, func(t *testing.T) Pair {
		ctx, err := soft.NewDevice(&soft.Config{MaxMsgSz: 8 << 20}).Open()
		require.NoError(t, err)
		wa, wb := soft.Pipe()
		closeAtEnd(t, wa.Close)
		closeAtEnd(t, wb.Close)
		return Pair{A: ctx, B: ctx, Link: func(a, b ibverbs.QP) error {
			if err := wa.Attach(a); err != nil {
				return err
			}
			return wb.Attach(b)
		}}
	})
}
