package rig

import (
	"net"
	"os"
	"slices"
	"strings"
	"testing"
)

// Missing skips the test because a requirement is missing, and says how to meet
// it; it fails the test if GDR_TEST_REQUIRE, a list with commas, names the
// requirement.
func Missing(t testing.TB, requirement string, err error, fix string) {
	t.Helper()
	const skip = "%s is missing: %v; %s"
	if slices.Contains(strings.Split(os.Getenv("GDR_TEST_REQUIRE"), ","), requirement) {
		t.Fatalf(skip, requirement, err, fix)
	}
	t.Skipf(skip, requirement, err, fix)
}

// RequireIPv6 skips the test where [::1] cannot be used.
func RequireIPv6(t testing.TB) {
	t.Helper()
	l, err := net.Listen("tcp", "[::1]:0")
	if err != nil {
		Missing(t, "ipv6", err, "enable it on the loopback interface (sysctl net.ipv6.conf.lo.disable_ipv6=0)")
	}
	l.Close()
}
