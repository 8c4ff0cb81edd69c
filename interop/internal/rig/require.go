package rig

import (
	"net"
	"testing"

	"github.com/gdrpc/gdrpc/internal/skip"
)

// RequireIPv6 skips the test where [::1] cannot be used.
func RequireIPv6(t testing.TB) {
	t.Helper()
	l, err := net.Listen("tcp", "[::1]:0")
	if err != nil {
		skip.Missing(t, "ipv6", err, "enable it on the loopback interface (sysctl net.ipv6.conf.lo.disable_ipv6=0)")
	}
	l.Close()
}
