package gpubuf_test

import (
	"flag"
	"os"
	"testing"

	"github.com/gdrpc/gdrpc/internal/leak/leaktest"
)

func TestMain(m *testing.M) {
	flag.Parse()
	if flag.Lookup("test.bench").Value.String() != "" {
		os.Exit(m.Run()) // counting objects would be what is measured
	}
	leaktest.Main(m)
}
