package dialer

import (
	"context"
	"net"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestDirect: where a server may send its clients, and where not.
func TestDirect(t *testing.T) {
	names := map[string]string{
		"ip4 backend": "10.0.0.7",
		"ip6 backend": "2001:db8::7",
		"ip4 local":   "127.0.0.1",
	}
	look := func(_ context.Context, network, host string) ([]netip.Addr, error) {
		ip, ok := names[network+" "+host]
		if !ok {
			return nil, errInjected
		}
		// What comes first may not be used; what comes second is.
		return []netip.Addr{netip.MustParseAddr("224.0.0.1"), netip.MustParseAddr(ip), netip.MustParseAddr("10.0.0.8")}, nil
	}
	const no = "no address that a server at "
	tests := []struct{ via, addr, want, err string }{
		{"192.0.2.1", "10.0.0.1:5", "10.0.0.1:5", ""},
		{"192.0.2.1", "backend:5", "10.0.0.7:5", ""},
		{"192.0.2.1", "nowhere:5", "", "injected"},
		{"::ffff:192.0.2.1", "10.0.0.1:5", "10.0.0.1:5", ""},
		{"192.0.2.1", "[::ffff:10.0.0.1]:5", "10.0.0.1:5", ""},
		{"2001:db8::1", "[2001:db8::2]:5", "[2001:db8::2]:5", ""},
		{"2001:db8::1", "backend:5", "[2001:db8::7]:5", ""},
		{"127.0.0.1", "127.0.0.1:5", "127.0.0.1:5", ""},
		{"127.0.0.1", "10.0.0.1:5", "10.0.0.1:5", ""},
		{"fe80::1", "[fe80::2]:5", "[fe80::2]:5", ""},

		{"192.0.2.1", "127.0.0.1:5", "", no},
		{"192.0.2.1", "[::ffff:127.0.0.1]:5", "", no},
		{"192.0.2.1", "0.0.0.0:5", "", no},
		{"192.0.2.1", "224.0.0.1:5", "", no},
		{"192.0.2.1", "169.254.169.254:5", "", no},
		{"192.0.2.1", "255.255.255.255:5", "", no},
		{"192.0.2.1", "[2001:db8::2]:5", "", no},
		{"2001:db8::1", "10.0.0.1:5", "", no},
		{"2001:db8::1", "[::1]:5", "", no},
		{"2001:db8::1", "[fe80::1]:5", "", no},
		{"2001:db8::1", "[ff02::1]:5", "", no},
	}
	for _, tt := range tests {
		via := net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(tt.via), 50051))
		got, err := direct(t.Context(), look, tt.addr, via)
		require.Equal(t, tt.want, got, "%v", tt)
		if tt.err != "" {
			require.ErrorContains(t, err, tt.err, "%v", tt)
		}
	}
	via := &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1)}
	_, err := direct(t.Context(), func(context.Context, string, string) ([]netip.Addr, error) {
		return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
	}, "local:5", via)
	require.ErrorContains(t, err, no+"192.0.2.1 may send a client to")
	_, err = direct(t.Context(), look, "10.0.0.1:5", &net.UnixAddr{})
	require.ErrorContains(t, err, "not over TCP")
}
