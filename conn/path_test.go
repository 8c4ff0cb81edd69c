package conn

import (
	"encoding/json"
	"flag"
	"io"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestPathText: paths are read and written by their names.
func TestPathText(t *testing.T) {
	for p := range PathGDR + 1 {
		text, err := json.Marshal(p)
		require.NoError(t, err)
		require.Equal(t, `"`+p.String()+`"`, string(text))
		var back Path
		require.NoError(t, json.Unmarshal(text, &back))
		require.Equal(t, p, back)
	}
	fs := flag.NewFlagSet("", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	var p Path
	fs.TextVar(&p, "path", PathSoft, "")
	require.Equal(t, PathSoft, p)
	require.NoError(t, fs.Parse([]string{"-path", "rdma-staged"}))
	require.Equal(t, PathRDMAStaged, p)
	require.ErrorContains(t, fs.Parse([]string{"-path", "tcp"}), `there is no path "tcp"; want one of inline, soft, rdma-staged, ipc, gdr`)
	require.ErrorContains(t, fs.Parse([]string{"-path", ""}), "there is no path")
}
