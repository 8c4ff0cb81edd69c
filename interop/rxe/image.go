package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gdrpc/gdrpc/interop/rxe/internal/plan"
)

// image builds the guest's file system. Programs and libraries lie where they
// lie on the host.
type image struct {
	*cpio
}

// merged are the folders that a Debian system has below /usr, with a link from
// the root.
var merged = []string{"bin", "sbin", "lib", "lib64"}

// build is what the image is made of.
type build struct {
	init    string   // the guest's first process
	steps   []*step  // with their binaries
	modules []string // files of kernel modules
}

// writeImage writes the file system of b to path.
func writeImage(path string, b build) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	w := bufio.NewWriterSize(f, 1<<20)
	im := image{newCPIO(w)}
	if err := im.fill(b); err != nil {
		return err
	}
	if err := im.close(); err != nil {
		return err
	}
	return w.Flush()
}

func (im image) fill(b build) error {
	for _, dir := range merged {
		im.add("/"+dir, os.ModeSymlink|0o777, []byte("usr/"+dir))
	}
	im.add("/tmp", os.ModeDir|0o777, nil)
	im.add("/etc/hosts", 0o644, []byte("127.0.0.1 localhost\n::1 localhost\n"))
	im.add("/etc/passwd", 0o644, []byte("root:x:0:0:root:/tmp:/usr/bin/false\n"))
	var p plan.Plan
	for i, m := range b.modules {
		name := fmt.Sprintf("/modules/%02d-%s", i, filepath.Base(m))
		if err := im.file(m, name); err != nil {
			return err
		}
		p.Modules = append(p.Modules, name)
	}
	if err := im.file(b.init, "/init"); err != nil {
		return err
	}
	if err := im.verbs(); err != nil {
		return err
	}
	for _, name := range append(guestPrograms(b.steps), "ip", "rdma") {
		if err := im.program(name); err != nil {
			return err
		}
	}
	for _, s := range b.steps {
		if err := im.step(s); err != nil {
			return err
		}
		p.Steps = append(p.Steps, s.plan())
	}
	data, err := json.Marshal(p)
	im.add(plan.Path, 0o644, data)
	return err
}

// verbs adds the libraries that programs load at run time: libibverbs, and its
// driver of the emulated device.
func (im image) verbs() error {
	for _, pattern := range []string{"/etc/libibverbs.d/rxe.driver", verbsLibrary, driverPattern} {
		found, err := filepath.Glob(pattern)
		if err != nil || len(found) == 0 {
			return fmt.Errorf("no file %s: apt-get install ibverbs-providers", pattern)
		}
		for _, path := range found {
			if err := im.withLibraries(path, path); err != nil {
				return err
			}
		}
	}
	return nil
}

// program adds a program of the host by its name.
func (im image) program(name string) error {
	path, err := exec.LookPath(name)
	if err != nil {
		return err
	}
	return im.withLibraries(path, "/usr/bin/"+name)
}

// step adds the binary of s, and what its package's tests read.
func (im image) step(s *step) error {
	if s.binary == "" {
		return nil
	}
	if err := im.withLibraries(s.binary, s.guestBinary()); err != nil {
		return err
	}
	im.add(s.guestDir(), os.ModeDir|0o755, nil)
	if s.dir == "" {
		return nil
	}
	data := filepath.Join(s.dir, "testdata")
	return filepath.WalkDir(data, func(path string, d fs.DirEntry, err error) error {
		if os.IsNotExist(err) {
			return nil
		}
		if err != nil || d.IsDir() {
			return err
		}
		return im.file(path, s.guestDir()+strings.TrimPrefix(path, s.dir))
	})
}

// withLibraries adds a file and the shared libraries that it needs.
func (im image) withLibraries(path, name string) error {
	if err := im.file(path, name); err != nil {
		return err
	}
	// Static programs and files that are no programs end with an error.
	out, _ := exec.Command("ldd", path).Output()
	for _, lib := range libraries(string(out)) {
		if err := im.file(lib, inUsr(lib)); err != nil {
			return err
		}
	}
	return nil
}

// libraries returns the paths in the output of ldd.
func libraries(out string) (paths []string) {
	for _, word := range strings.Fields(out) {
		if strings.HasPrefix(word, "/") && strings.Contains(word, ".so") {
			paths = append(paths, word)
		}
	}
	return paths
}

// inUsr is path with /lib and its like below /usr, as in the image.
func inUsr(path string) string {
	if first, _, _ := strings.Cut(path[1:], "/"); slices.Contains(merged, first) {
		return "/usr" + path
	}
	return path
}

// file adds a file of the host.
func (im image) file(path, name string) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	im.add(name, info.Mode().Perm(), data)
	return nil
}
