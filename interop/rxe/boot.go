package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/gdrpc/gdrpc/interop/rxe/internal/plan"
)

// machine is a virtual machine to boot.
type machine struct {
	kernel, image string
	log           string // file for what the kernel says
	cpus          int
	memory        int // MiB
}

// How long a machine may take until its device is up.
const (
	upEmulated    = 2 * time.Minute
	upAccelerated = 10 * time.Second
)

// boot runs m under the accelerator ("kvm" or "tcg") and hands its events to
// handle, one at a time, until it switches itself off. It fails if the device
// does not come up.
func (m machine) boot(ctx context.Context, accel string, limit time.Duration, handle func(plan.Event)) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	late := fmt.Errorf("the guest says nothing for %v under -accel %s", limit, accel)
	up := time.AfterFunc(limit, func() { stop(late) })
	defer up.Stop()
	// Linux does not trust an emulated TSC and would read the HPET instead, which
	// leaves the emulated processor each time.
	const clock = "tsc=reliable clocksource=tsc"
	cmd := exec.CommandContext(ctx, "qemu-system-x86_64", "-accel", accel, "-cpu", "max",
		"-smp", strconv.Itoa(m.cpus), "-m", strconv.Itoa(m.memory), "-nodefaults", "-no-reboot", "-display", "none",
		"-kernel", m.kernel, "-initrd", m.image, "-append", "console=ttyS0 panic=-1 mitigations=off quiet "+clock,
		"-serial", "file:"+m.log, "-serial", "stdio")
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	start := time.Now()
	var device error = errors.New("the guest ended before its device was up")
	err = events(out, func(e plan.Event) {
		if e.Up != nil {
			up.Stop()
			fmt.Printf("rxe: the guest is up after %v under -accel %s\n", time.Since(start).Round(100*time.Millisecond), accel)
			if device = nil; e.Up.Error != "" {
				device = fmt.Errorf("the device does not come up: %s", e.Up.Error)
			}
		}
		handle(e)
	})
	if wait := cmd.Wait(); wait != nil {
		err = fmt.Errorf("qemu: %w: %s", wait, bytes.TrimSpace(said.Bytes()))
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return errors.Join(err, device)
}

// events hands each event that it reads to handle.
func events(in io.Reader, handle func(plan.Event)) error {
	for dec := json.NewDecoder(in); ; {
		var e plan.Event
		if err := dec.Decode(&e); err == io.EOF {
			return nil
		} else if err != nil {
			_, _ = io.Copy(io.Discard, in) // so that the guest does not block
			return fmt.Errorf("the guest's report: %w", err)
		}
		handle(e)
	}
}

// bootFast boots with hardware acceleration where that works, else without.
// That /dev/kvm is there means little: inside another virtual machine it may
// hang. A failure is kept in the cache until this machine boots again.
func (m machine) bootFast(ctx context.Context, handle func(plan.Event)) error {
	if f, err := os.OpenFile("/dev/kvm", os.O_RDWR, 0); err != nil {
		return m.boot(ctx, "tcg", upEmulated, handle)
	} else {
		f.Close()
	}
	dir, err := cacheDir()
	if err != nil {
		return err
	}
	note := filepath.Join(dir, "kvm-fails")
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return err
	}
	if known, _ := os.ReadFile(note); !bytes.Equal(known, id) {
		isUp := false
		err := m.boot(ctx, "kvm", upAccelerated, func(e plan.Event) { isUp = true; handle(e) })
		if isUp || ctx.Err() != nil {
			return err
		}
		fmt.Printf("rxe: no acceleration, which is remembered: %v\n", err)
		if err := os.WriteFile(note, id, 0o644); err != nil {
			return err
		}
	}
	return m.boot(ctx, "tcg", upEmulated, handle)
}

// kernelLog is the end of what the kernel said.
func kernelLog(path string, lines int) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimSpace(strings.ReplaceAll(string(data), "\r", "")), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
