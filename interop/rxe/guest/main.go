// Command guest is the first process of the machine that interop/rxe boots. It
// brings up the emulated RDMA device, runs the steps of the plan and switches
// the machine off.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"

	"github.com/gdrpc/gdrpc/interop/rxe/internal/plan"
	"golang.org/x/sys/unix"
)

// stepsArg makes the program the runner of the steps, a child of process 1.
const stepsArg = "steps"

func main() {
	if len(os.Args) > 1 && os.Args[1] == stepsArg {
		if err := run(); err != nil {
			fmt.Fprintln(os.Stderr, "guest:", err)
			os.Exit(1)
		}
		return
	}
	if os.Getpid() != 1 {
		fmt.Fprintln(os.Stderr, "guest: to be started as process 1 of a virtual machine; use go run ./interop/rxe")
		os.Exit(2)
	}
	if err := first(); err != nil {
		fmt.Fprintln(os.Stderr, "guest:", err)
	}
	unix.Sync()
	_ = unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
}

// first is process 1: it reaps what others leave behind, which a process that
// waits for children of its own cannot do, and returns when the runner ends.
func first() error {
	if err := mounts(); err != nil {
		return err
	}
	cmd := exec.Command("/proc/self/exe", stepsArg)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.Env = []string{"PATH=/usr/bin:/usr/sbin", "HOME=/tmp", "GDR_TEST_REQUIRE=verbs"}
	if err := cmd.Start(); err != nil {
		return err
	}
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, 0, nil)
		if err != nil && err != unix.EINTR {
			return err
		}
		if pid == cmd.Process.Pid {
			return nil
		}
	}
}

// run does what the plan says.
func run() error {
	var p plan.Plan
	data, err := os.ReadFile(plan.Path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, &p); err != nil {
		return err
	}
	out, err := os.OpenFile("/dev/ttyS1", os.O_WRONLY|unix.O_NOCTTY, 0)
	if err != nil {
		return err
	}
	defer out.Close()
	r := &runner{out: json.NewEncoder(out)}
	text, err := bringUp(p.Modules)
	up := plan.Up{Device: text}
	if err != nil {
		up.Error = err.Error()
	}
	r.event(plan.Event{Up: &up})
	if err != nil {
		return err
	}
	for _, s := range p.Steps {
		r.step(s)
	}
	return nil
}
