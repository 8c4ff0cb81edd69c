package main

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// kernel is a kernel to boot and its modules.
type kernel struct {
	image   string
	modules []string // files, in the order of loading
}

// openKernel returns the kernel below root, a file system with /boot and
// /lib/modules, copied to scratch; or, without root, that of Debian's package,
// which it downloads once into the user's cache.
func openKernel(root, scratch string) (*kernel, error) {
	if root != "" {
		return pick(root, scratch)
	}
	dir, err := cacheDir()
	if err != nil {
		return nil, err
	}
	// What is kept depends on the list of modules.
	dir = filepath.Join(dir, fmt.Sprintf("kernel-%.6x", sha256.Sum256([]byte(strings.Join(wanted, " ")))))
	if k, err := readKernel(dir); err == nil {
		return k, nil
	}
	if err := download(dir); err != nil {
		return nil, err
	}
	return readKernel(dir)
}

// cacheDir is where this program keeps what it downloads and learns.
func cacheDir() (string, error) {
	base, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(base, "gdrpc-rxe")
	return dir, os.MkdirAll(dir, 0o755)
}

// download fills dir with the kernel of Debian's package.
func download(dir string) error {
	tmp, err := os.MkdirTemp(filepath.Dir(dir), "download-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	pkg, err := kernelPackage()
	if err != nil {
		return err
	}
	fmt.Println("rxe: downloading", pkg)
	root, picked := filepath.Join(tmp, "root"), filepath.Join(tmp, "picked")
	// Not as apt's own user, who may not write into this folder.
	if err := quiet(tmp, "apt-get", "-qq", "-o", "APT::Sandbox::User=root", "download", pkg); err != nil {
		return fmt.Errorf("the kernel package cannot be downloaded: %w\n"+
			"a network and a fresh package list are needed once: apt-get update; or name an installed kernel: -kernel /", err)
	}
	found, err := filepath.Glob(filepath.Join(tmp, "*.deb"))
	if err != nil || len(found) != 1 {
		return fmt.Errorf("apt-get download %s left %d packages", pkg, len(found))
	}
	if err := quiet(tmp, "dpkg-deb", "-x", found[0], root); err != nil {
		return err
	}
	if err := os.Mkdir(picked, 0o755); err != nil {
		return err
	}
	if _, err := pick(root, picked); err != nil {
		return err
	}
	err = os.Rename(picked, dir)
	if errors.Is(err, os.ErrExist) {
		return nil // somebody else was faster
	}
	return err
}

// kernelPackage is the package that the newest kernel's meta package names.
func kernelPackage() (string, error) {
	const meta = "linux-image-amd64"
	out, err := exec.Command("apt-cache", "depends", meta).Output()
	for line := range strings.Lines(string(out)) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "Depends: "); ok {
			return name, nil
		}
	}
	return "", fmt.Errorf("no package %s is known (%w): run apt-get update; on a system that is not Debian name an installed kernel: -kernel /",
		meta, errors.Join(err, errors.New("apt-cache depends names none")))
}

// pick copies the newest kernel below root, and the modules that are needed, to dir.
func pick(root, dir string) (*kernel, error) {
	images, err := filepath.Glob(filepath.Join(root, "boot", "vmlinuz-*"))
	if err != nil || len(images) == 0 {
		return nil, fmt.Errorf("no kernel %s/boot/vmlinuz-*", root)
	}
	image := images[len(images)-1]
	release := strings.TrimPrefix(filepath.Base(image), "vmlinuz-")
	tree, err := readModules(filepath.Join(root, "lib", "modules", release))
	if err != nil {
		return nil, err
	}
	modules, err := tree.closure(wanted)
	if err != nil {
		return nil, err
	}
	for i, m := range modules {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%02d-%s.ko", i, m.name)), m.data, 0o644); err != nil {
			return nil, err
		}
	}
	data, err := os.ReadFile(image)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(dir, "vmlinuz"), data, 0o644); err != nil {
		return nil, err
	}
	return readKernel(dir)
}

// readKernel returns what pick left in dir.
func readKernel(dir string) (*kernel, error) {
	k := &kernel{image: filepath.Join(dir, "vmlinuz")}
	if _, err := os.Stat(k.image); err != nil {
		return nil, err
	}
	var err error
	k.modules, err = filepath.Glob(filepath.Join(dir, "*.ko"))
	return k, err
}

// quiet runs a command in dir; its output is part of the error.
func quiet(dir string, argv ...string) error {
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(argv, " "), err, bytes.TrimSpace(out))
	}
	return nil
}
