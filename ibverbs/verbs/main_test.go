package verbs

import (
	"testing"

	"github.com/gdrpc/gdrpc/internal/leak/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }
