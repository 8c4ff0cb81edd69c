package main

import (
	"bytes"
	"debug/elf"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// wanted are the kernel modules that the guest loads, with what they depend on:
// the device, its interfaces for programs, the network device below it, and the
// checksum that the device asks the kernel for by name.
var wanted = []string{"crc32_pclmul", "crc32_generic", "veth", "rdma_rxe", "ib_uverbs", "rdma_ucm"}

// moduleTree finds modules of one kernel.
type moduleTree struct {
	files   map[string]string // by the module's name
	builtin map[string]bool
}

// readModules reads a folder lib/modules/RELEASE.
func readModules(dir string) (*moduleTree, error) {
	t := &moduleTree{files: make(map[string]string), builtin: make(map[string]bool)}
	list, err := os.ReadFile(filepath.Join(dir, "modules.builtin"))
	if err != nil {
		return nil, err
	}
	for path := range strings.FieldsSeq(string(list)) {
		t.builtin[moduleName(path)] = true
	}
	err = filepath.WalkDir(filepath.Join(dir, "kernel"), func(path string, _ fs.DirEntry, err error) error {
		if strings.Contains(filepath.Base(path), ".ko") {
			t.files[moduleName(path)] = path
		}
		return err
	})
	return t, err
}

// moduleName is the name in the kernel of a module's file.
func moduleName(path string) string {
	name, _, _ := strings.Cut(filepath.Base(path), ".")
	return strings.ReplaceAll(name, "-", "_")
}

// module is one module to load.
type module struct {
	name string
	data []byte
}

// closure returns the modules with what they depend on, in the order of loading.
func (t *moduleTree) closure(names []string) ([]module, error) {
	var order []module
	seen := make(map[string]bool)
	var visit func(name string) error
	visit = func(name string) error {
		if seen[name] || t.builtin[name] {
			return nil
		}
		seen[name] = true
		path := t.files[name]
		if path == "" {
			return fmt.Errorf("the kernel has no module %s", name)
		}
		data, err := readModule(path)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		needs, err := dependencies(data)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		for _, n := range needs {
			if err := visit(n); err != nil {
				return fmt.Errorf("%s needs: %w", name, err)
			}
		}
		order = append(order, module{name, data})
		return nil
	}
	for _, n := range names {
		if err := visit(n); err != nil {
			return nil, err
		}
	}
	return order, nil
}

// readModule reads a module's file, which may be compressed.
func readModule(path string) ([]byte, error) {
	switch filepath.Ext(path) {
	case ".xz":
		return exec.Command("xz", "-dc", path).Output()
	case ".zst":
		return exec.Command("zstd", "-dc", path).Output()
	}
	return os.ReadFile(path)
}

// dependencies returns the names of the modules that a module needs.
func dependencies(ko []byte) ([]string, error) {
	f, err := elf.NewFile(bytes.NewReader(ko))
	if err != nil {
		return nil, err
	}
	info := f.Section(".modinfo")
	if info == nil {
		return nil, fmt.Errorf("no section .modinfo")
	}
	data, err := info.Data()
	if err != nil {
		return nil, err
	}
	for field := range bytes.SplitSeq(data, []byte{0}) {
		if list, ok := strings.CutPrefix(string(field), "depends="); ok && list != "" {
			return strings.Split(strings.ReplaceAll(list, "-", "_"), ","), nil
		}
	}
	return nil, nil
}
