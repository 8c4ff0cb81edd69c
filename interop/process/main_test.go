package process

import (
	"testing"

	"github.com/gdrpc/gdrpc/internal/leak/leaktest"
	"github.com/gdrpc/gdrpc/interop/internal/rig"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// TestChild is what the processes run that the other tests start.
func TestChild(t *testing.T) {
	rig.Play(t, map[string]func(*testing.T, *rig.Parent){
		"client": playClient,
		"server": playServer,
	})
}
