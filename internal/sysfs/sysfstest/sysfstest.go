// Package sysfstest makes the sysfs and procfs of machines that are not there,
// from text files of a few lines.
//
// Each line of such a manifest is one of these; # starts a comment:
//
//	pci PATH [key=value ...]      a PCI function and the bridges above it, "pci0000:15/0000:15:01.0/0000:16:00.0";
//	                              each key is an attribute's file, but iommu=N is its IOMMU group and
//	                              physfn=ADDRESS says whose virtual function it is
//	net NAME [pci=ADDRESS]        a network interface
//	rdma NAME [pci=ADDRESS] [key=value ...]
//	                              an RDMA device; the keys are attributes
//	port NAME NUMBER [key=value ...]
//	                              a port of an RDMA device
//	gid NAME PORT INDEX GID TYPE [NETDEV]
//	                              an entry of a port's GID table; TYPE has _ for a space
//	node NUMBER CPULIST           a NUMA node
//	group NUMBER TYPE             an IOMMU group
//	file PATH TEXT                a file; TEXT is the rest of the line, \n and so on as in Go
//	link PATH TARGET              a symbolic link
package sysfstest

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Expand makes the machine of a manifest in a temporary folder, and returns the
// folder. Further manifests add to the first.
func Expand(t testing.TB, manifests ...string) (root string) {
	t.Helper()
	m := &maker{root: t.TempDir()}
	for _, manifest := range manifests {
		b, err := os.ReadFile(manifest)
		require.NoError(t, err)
		for i, line := range strings.Split(string(b), "\n") {
			line, _, _ = strings.Cut(line, "#")
			if line = strings.TrimSpace(line); line == "" {
				continue
			}
			if err := m.line(line); err != nil {
				t.Fatalf("%s:%d: %v", manifest, i+1, err)
			}
		}
	}
	require.NoError(t, m.nodesOnline())
	return m.root
}

type maker struct {
	root  string
	nodes []string
}

func (m *maker) line(line string) error {
	verb, rest, _ := strings.Cut(line, " ")
	f := strings.Fields(rest)
	type form struct {
		least int
		do    func([]string) error
	}
	forms := map[string]form{
		"pci": {1, m.pci}, "net": {1, m.net}, "rdma": {1, m.rdma}, "port": {2, m.port}, "gid": {5, m.gid},
		"node": {2, m.node}, "group": {2, m.group}, "link": {2, m.symlink},
	}
	if verb == "file" {
		path, text, _ := strings.Cut(strings.TrimSpace(rest), " ")
		return m.text(path, text)
	}
	fm, ok := forms[verb]
	if !ok || len(f) < fm.least {
		return fmt.Errorf("cannot read %q", line)
	}
	return fm.do(f)
}

func (m *maker) text(path, text string) error {
	text, err := strconv.Unquote(`"` + strings.ReplaceAll(text, `"`, `\"`) + `"`)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return m.file(path, text)
}

func (m *maker) file(path, content string) error {
	full := filepath.Join(m.root, path)
	if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
		return err
	}
	return os.WriteFile(full, []byte(content+"\n"), 0o644)
}

// link makes a link between two paths of the tree, relative as in sysfs.
func (m *maker) link(path, target string) error {
	full := filepath.Join(m.root, path)
	dir := filepath.Dir(full)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	rel, err := filepath.Rel(dir, filepath.Join(m.root, target))
	if err != nil {
		return err
	}
	if old, err := os.Readlink(full); err == nil && old == rel {
		return nil
	}
	return os.Symlink(rel, full)
}

func (m *maker) symlink(f []string) error { return m.link(f[0], f[1]) }

// attributes writes key=value pairs as files of dir, but those that special
// takes.
func (m *maker) attributes(dir string, pairs []string, special map[string]func(string) error) error {
	for _, p := range pairs {
		key, value, ok := strings.Cut(p, "=")
		if !ok {
			return fmt.Errorf("%q: want key=value", p)
		}
		do := special[key]
		if do == nil {
			do = func(v string) error { return m.file(dir+"/"+key, strings.ReplaceAll(v, "_", " ")) }
		}
		if err := do(value); err != nil {
			return err
		}
	}
	return nil
}

const buses = "sys/bus/pci/devices/"

func (m *maker) pci(f []string) error {
	parts := strings.Split(f[0], "/")
	for i := 1; i < len(parts); i++ {
		dir := "sys/devices/" + strings.Join(parts[:i+1], "/")
		if err := os.MkdirAll(filepath.Join(m.root, dir), 0o755); err != nil {
			return err
		}
		if strings.HasPrefix(parts[i], "pci") {
			continue // a host bridge below a PCI function
		}
		if err := m.link(buses+parts[i], dir); err != nil {
			return err
		}
	}
	dir := "sys/devices/" + f[0]
	return m.attributes(dir, f[1:], map[string]func(string) error{
		"iommu":  func(n string) error { return m.link(dir+"/iommu_group", "sys/kernel/iommu_groups/"+n) },
		"physfn": func(id string) error { return m.linkReal(dir+"/physfn", buses+id) },
	})
}

// linkReal links to where target's own link leads.
func (m *maker) linkReal(path, target string) error {
	real, err := m.real(target)
	if err != nil {
		return err
	}
	return m.link(path, real)
}

func (m *maker) real(path string) (string, error) {
	full, err := filepath.EvalSymlinks(filepath.Join(m.root, path))
	if err != nil {
		return "", err
	}
	return filepath.Rel(m.root, full)
}

// classDevice makes a device of a class, below its PCI function if it has one,
// and returns its folder.
func (m *maker) classDevice(class, name, pci string) (dir string, err error) {
	parent := "sys/devices/virtual"
	if pci != "" {
		if parent, err = m.real(buses + pci); err != nil {
			return "", err
		}
	}
	dir = parent + "/" + class + "/" + name
	if err := os.MkdirAll(filepath.Join(m.root, dir), 0o755); err != nil {
		return "", err
	}
	if pci != "" {
		if err := m.link(dir+"/device", parent); err != nil {
			return "", err
		}
	}
	return dir, m.link("sys/class/"+class+"/"+name, dir)
}

// owner splits pci=ADDRESS off a device's pairs.
func owner(pairs []string) (pci string, rest []string) {
	for _, p := range pairs {
		if id, ok := strings.CutPrefix(p, "pci="); ok {
			pci = id
			continue
		}
		rest = append(rest, p)
	}
	return pci, rest
}

func (m *maker) net(f []string) error {
	pci, pairs := owner(f[1:])
	dir, err := m.classDevice("net", f[0], pci)
	if err != nil {
		return err
	}
	return m.attributes(dir, pairs, nil)
}

func (m *maker) rdma(f []string) error {
	pci, pairs := owner(f[1:])
	dir, err := m.classDevice("infiniband", f[0], pci)
	if err != nil {
		return err
	}
	return m.attributes(dir, pairs, nil)
}

func portDir(name, port string) string { return "sys/class/infiniband/" + name + "/ports/" + port }

func (m *maker) port(f []string) error { return m.attributes(portDir(f[0], f[1]), f[2:], nil) }

func (m *maker) gid(f []string) error {
	dir := portDir(f[0], f[1])
	if err := m.file(dir+"/gids/"+f[2], f[3]); err != nil {
		return err
	}
	if err := m.file(dir+"/gid_attrs/types/"+f[2], strings.ReplaceAll(f[4], "_", " ")); err != nil {
		return err
	}
	if len(f) < 6 {
		return nil
	}
	return m.file(dir+"/gid_attrs/ndevs/"+f[2], f[5])
}

const nodesDir = "sys/devices/system/node/"

func (m *maker) node(f []string) error {
	m.nodes = append(m.nodes, f[0])
	return m.file(nodesDir+"node"+f[0]+"/cpulist", f[1])
}

func (m *maker) nodesOnline() error {
	if len(m.nodes) == 0 {
		return nil
	}
	return m.file(nodesDir+"online", strings.Join(m.nodes, ","))
}

func (m *maker) group(f []string) error {
	return m.file("sys/kernel/iommu_groups/"+f[0]+"/type", f[1])
}
