package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/gdrpc/gdrpc/interop/rxe/internal/plan"
	"golang.org/x/sys/unix"
)

// patience is how long the network and the device may take to come up.
const patience = 30 * time.Second

// mounts makes the file systems that programs expect.
func mounts() error {
	for _, m := range []struct{ kind, dir string }{
		{"proc", "/proc"}, {"sysfs", "/sys"}, {"devtmpfs", "/dev"}, {"tmpfs", "/tmp"}, {"tmpfs", "/dev/shm"},
	} {
		if err := os.MkdirAll(m.dir, 0o755); err != nil {
			return err
		}
		if err := unix.Mount("none", m.dir, m.kind, 0, ""); err != nil {
			return fmt.Errorf("mount %s: %w", m.dir, err)
		}
	}
	return os.Chmod("/tmp", 0o1777)
}

// verbose makes the kernel say everything from now on, at the price of a slow
// serial port. The host starts it quiet.
func verbose() error {
	const consoleLevel = 8 // SYSLOG_ACTION_CONSOLE_LEVEL, whose argument is the length
	_, err := unix.Klogctl(consoleLevel, make([]byte, 8))
	return err
}

// bringUp makes the device and returns a line about it.
func bringUp(modules []string) (string, error) {
	if err := verbose(); err != nil {
		return "", fmt.Errorf("klogctl: %w", err)
	}
	for _, m := range modules {
		if err := load(m); err != nil {
			return "", err
		}
	}
	for _, l := range []struct {
		resource int
		limit    uint64
	}{{unix.RLIMIT_MEMLOCK, unix.RLIM_INFINITY}, {unix.RLIMIT_NOFILE, 65536}} {
		if err := unix.Setrlimit(l.resource, &unix.Rlimit{Cur: l.limit, Max: l.limit}); err != nil {
			return "", fmt.Errorf("setrlimit: %w", err)
		}
	}
	// The device sits on one end of a veth pair, whose MTU leaves room for a
	// RoCE path MTU of 4096. Both ends of a connection are this one device.
	for _, line := range []string{
		"ip link set lo up",
		"ip link add v0 mtu 4500 type veth peer name v1 mtu 4500",
		"ip addr add " + plan.Address + "/24 dev v0",
		"ip link set v0 up",
		"ip link set v1 up",
	} {
		if err := command(line); err != nil {
			return "", err
		}
	}
	if err := await("/sys/class/net/v0/operstate", "up"); err != nil {
		return "", err
	}
	if err := command("rdma link add " + plan.Device + " type rxe netdev v0"); err != nil {
		return "", err
	}
	port := "/sys/class/infiniband/" + plan.Device + "/ports/1/"
	gid := fmt.Sprint(port, "gids/", plan.GIDIndex)
	if err := errors.Join(await(port+"state", "4: ACTIVE"), await(gid, "0000:0000:0000:0000:0000:ffff:0a08:0001")); err != nil {
		return "", err
	}
	release, err := os.ReadFile("/proc/sys/kernel/osrelease")
	return fmt.Sprintf("%s ACTIVE, GID %d %s, Linux %s", plan.Device, plan.GIDIndex, plan.Address, strings.TrimSpace(string(release))), err
}

// load loads one kernel module.
func load(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.FinitModule(int(f.Fd()), "", 0); err != nil && err != unix.EEXIST {
		return fmt.Errorf("load module %s: %w", path, err)
	}
	return nil
}

func command(line string) error {
	argv := strings.Fields(line)
	if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", line, err, out)
	}
	return nil
}

// await polls a file of the kernel, which has no other sign for all of these,
// until it holds want.
func await(path, want string) error {
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		data, err := os.ReadFile(path)
		got := strings.TrimSpace(string(data))
		if got == want {
			return nil
		}
		if time.Now().After(deadline) {
			return errors.Join(err, fmt.Errorf("%s is %q after %v, not %q", path, got, patience, want))
		}
	}
}
