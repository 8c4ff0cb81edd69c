package handshake

import (
	"slices"
	"strings"
	"testing"

	"github.com/gdrpc/gdrpc/internal/handshake/wirepb"
	"github.com/stretchr/testify/require"
)

func TestCheckAdvertised(t *testing.T) {
	tests := []struct{ addr, want string }{
		{"10.0.0.1:50051", ""},
		{"[2001:db8::1]:50051", ""},
		{"backend-7.example.:1", ""},
		{strings.Repeat("a", 255) + ":65535", ""},
		{"", "missing port in address"},
		{"10.0.0.1", "missing port in address"},
		{"10.0.0.1:", `port "": want a number from 1 to 65535`},
		{"10.0.0.1:0", `port "0": want a number from 1 to 65535`},
		{"10.0.0.1:65536", `port "65536": want a number from 1 to 65535`},
		{"10.0.0.1:-1", `port "-1": want a number from 1 to 65535`},
		{"10.0.0.1:http", `port "http": want a number from 1 to 65535`},
		{":50051", `host "": want an IP address or a name`},
		{"[fe80::1%eth0]:1", `host "fe80::1%eth0": want an IP address or a name`},
		{"a b:1", `host "a b": want an IP address or a name`},
		{"a\nb:1", `host "a\nb": want an IP address or a name`},
		{"unix:/x:1", "too many colons in address"},
		{"2001:db8::1", "too many colons in address"},
		{strings.Repeat("a", 300) + ":1", "302 bytes, at most 261 are allowed"},
	}
	for _, tt := range tests {
		err := CheckAdvertised(tt.addr)
		if tt.want == "" {
			require.NoError(t, err, tt.addr)
		} else {
			require.EqualError(t, err, tt.want)
		}
	}
}

// TestAdvertised: junk is skipped, and no more than a few are looked at.
func TestAdvertised(t *testing.T) {
	h := &wirepb.Hello{AdvertisedAddresses: []string{"", "a:1", ":2", "b:3"}}
	require.Equal(t, []string{"a:1", "b:3"}, advertised(h))
	h.AdvertisedAddresses = slices.Repeat([]string{"a:1"}, 100)
	require.Len(t, advertised(h), MaxAdvertised)
	h.AdvertisedAddresses = append(slices.Repeat([]string{"?"}, MaxAdvertised), "a:1")
	require.Empty(t, advertised(h))
	require.Empty(t, advertised(&wirepb.Hello{}))
}
