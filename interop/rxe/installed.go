package main

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// What programs find at run time, where Debian puts it.
const (
	verbsLibrary  = "/usr/lib/x86_64-linux-gnu/libibverbs.so.1"
	driverPattern = "/usr/lib/x86_64-linux-gnu/libibverbs/librxe-*.so"
)

// packages are the Debian packages of the programs that this one and its steps
// run. Those of apt and dpkg are always there.
var packages = map[string]string{
	"qemu-system-x86_64": "qemu-system-x86",
	"ip":                 "iproute2",
	"rdma":               "iproute2",
	"ibv_rc_pingpong":    "ibverbs-utils",
	"ib_send_bw":         "perftest",
	"ib_send_lat":        "perftest",
	"rstream":            "rdmacm-utils",
}

// installed fails if something that steps need is not there.
func installed(steps []*step) error {
	var missing []string
	for _, name := range append(guestPrograms(steps), "qemu-system-x86_64", "ip", "rdma") {
		if _, err := exec.LookPath(name); err != nil {
			missing = append(missing, packages[name])
		}
	}
	for _, pattern := range []string{verbsLibrary, driverPattern} {
		if found, err := filepath.Glob(pattern); err != nil || len(found) == 0 {
			missing = append(missing, "ibverbs-providers")
		}
	}
	if len(missing) == 0 {
		return nil
	}
	slices.Sort(missing)
	return fmt.Errorf("missing packages: apt-get install -y --no-install-recommends %s", strings.Join(slices.Compact(missing), " "))
}
