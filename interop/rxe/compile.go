package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// modulePath is the import path of what is tested.
const modulePath = "github.com/gdrpc/gdrpc"

// compile builds the guest's first process and the binaries of steps into dir,
// test binaries with the race detector if race is set.
func compile(ctx context.Context, dir string, steps []*step, race bool) (init string, err error) {
	init = filepath.Join(dir, "init")
	// It runs in a file system of few files: no libraries.
	if err := goTool(ctx, []string{"CGO_ENABLED=0"}, "build", "-o", init, modulePath+"/interop/rxe/guest"); err != nil {
		return "", err
	}
	built := make(map[string]bool)
	for _, s := range steps {
		if s.pkg == "" {
			continue
		}
		at := modulePath + "/" + s.pkg
		out, err := exec.CommandContext(ctx, "go", "list", "-f", "{{.Dir}}", at).Output()
		if err != nil {
			return "", fmt.Errorf("go list %s: %w", at, err)
		}
		s.dir = strings.TrimSpace(string(out))
		s.binary = filepath.Join(dir, filepath.Base(s.guestBinary()))
		if built[s.binary] {
			continue
		}
		built[s.binary] = true
		args := []string{"build", "-o", s.binary, at}
		if s.tests {
			// The guest's memory holds it; stacks do not need the symbols.
			args = []string{"test", "-c", fmt.Sprintf("-race=%t", race), "-ldflags=-s -w", "-o", s.binary, at}
		}
		// libibverbs is reached through cgo.
		if err := goTool(ctx, []string{"CGO_ENABLED=1"}, args...); err != nil {
			return "", err
		}
		if _, err := os.Stat(s.binary); err != nil {
			return "", fmt.Errorf("package %s has no tests: %w", s.pkg, err)
		}
	}
	return init, nil
}

func goTool(ctx context.Context, env []string, args ...string) error {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("go %s: %w", strings.Join(args, " "), err)
	}
	return nil
}
