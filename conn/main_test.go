package conn

import (
	"os"
	"testing"

	"github.com/gdrpc/gdrpc/gpubuf/named"
	"github.com/gdrpc/gdrpc/internal/leak/leaktest"
)

// deviceEnv names the GPU that tests use in place of an emulated one, "cuda:0".
const deviceEnv = "GDR_TEST_DEVICE"

func TestMain(m *testing.M) {
	named.Warm(os.Getenv(deviceEnv))
	leaktest.Main(m)
}
