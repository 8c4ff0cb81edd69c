package dialer

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParse(t *testing.T) {
	tests := []struct{ addr, network, address string }{
		{"host:80", "tcp", "host:80"},
		{"[::1]:80", "tcp", "[::1]:80"},
		{"unix:rel/path", "unix", "rel/path"},
		{"unix:/abs", "unix", "/abs"},
		{"unix:///abs", "unix", "/abs"},
		{"unix:@name", "unix", "@name"},
		{"unix-abstract:name", "unix", "@name"},
		{"\x00name", "unix", "@name"},
	}
	for _, tt := range tests {
		network, address := parse(tt.addr)
		require.Equal(t, tt.network, network, tt.addr)
		require.Equal(t, tt.address, address, tt.addr)
	}
}
