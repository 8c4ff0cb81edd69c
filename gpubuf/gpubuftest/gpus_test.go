package gpubuftest_test

import (
	"testing"

	"github.com/gdrpc/gdrpc/gpubuf"
	"github.com/gdrpc/gdrpc/gpubuf/gpubuftest"
)

// TestGPUs holds the devices of GPUs to what they stand for.
func TestGPUs(t *testing.T) {
	gpubuftest.RunStartCopy(t, func(t *testing.T) gpubuf.StartCopier {
		return gpubuftest.NewGPUs(t).Device().(gpubuf.StartCopier)
	})
}
