package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestForbidden(t *testing.T) {
	const mod = modulePath
	tests := []struct {
		name, from, imports string
		test, ok            bool
	}{
		{name: "down", from: mod + "/conn", imports: mod + "/ibverbs/soft", ok: true},
		{name: "up", from: mod + "/gpubuf/emu", imports: mod + "/conn"},
		{name: "own group", from: mod + "/ibverbs/soft", imports: mod + "/ibverbs", ok: true},
		{name: "side by side", from: mod + "/ibverbs", imports: mod + "/gpubuf"},
		{name: "side by side in a test", from: mod + "/dialer", imports: mod + "/listener", test: true, ok: true},
		{name: "up in a test", from: mod + "/dialer", imports: mod, test: true},
		{name: "the root is no prefix", from: mod + "/dialer", imports: mod},
		{name: "command on the root", from: mod + "/cmd/gdrperf", imports: mod, ok: true},
		{name: "library on a command", from: mod, imports: mod + "/cmd/gdrperf"},
		{name: "leak from anywhere", from: mod + "/ibverbs", imports: mod + "/internal/leak", ok: true},
		{name: "NVML in a command", from: mod + "/cmd/gdrinfo", imports: mod + "/internal/nvml", ok: true},
		{name: "NVML in the library", from: mod, imports: mod + "/internal/nvml"},
		{name: "NVML's module in the library", from: mod + "/internal/topology", imports: "github.com/NVIDIA/go-nvml/pkg/nvml"},
		{name: "no group", from: mod, imports: mod + "/util"},
		{name: "standard library", from: mod + "/ibverbs", imports: "net/http", ok: true},
		{name: "cgo", from: mod + "/ibverbs/verbs", imports: "C", ok: true},
		{name: "light module", from: mod + "/conn", imports: "golang.org/x/sys/unix", ok: true},
		{name: "heavy module", from: mod + "/conn", imports: "github.com/spf13/pflag"},
		{name: "heavy module in a command", from: mod + "/cmd/gdrperf", imports: "github.com/spf13/pflag", ok: true},
		{name: "test module", from: mod + "/conn", imports: "github.com/stretchr/testify/require"},
		{name: "test module in a test", from: mod + "/conn", imports: "github.com/stretchr/testify/require", test: true, ok: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			from, ok := groupOf(tt.from)
			require.True(t, ok)
			why := forbidden(from, tt.imports, tt.test)
			require.Equal(t, tt.ok, why == "", why)
		})
	}
}

func TestGroupOf(t *testing.T) {
	for path, want := range map[string]string{
		modulePath:                          ".",
		modulePath + "/internal/leak/x":     "internal/leak",
		modulePath + "/examples/quickstart": "examples",
		modulePath + "/connection":          "",
	} {
		g, _ := groupOf(path)
		require.Equal(t, want, g.path, path)
	}
}
