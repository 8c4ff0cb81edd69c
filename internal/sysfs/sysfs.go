// Package sysfs reads the kernel's file systems (/sys, /proc) below a root
// folder, which in tests is a made-up machine.
package sysfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Root is the folder below which everything is read; "" and "/" are this
// machine's own. Paths have no leading slash: "sys/class/net".
type Root string

// Path returns the path of a name below the root.
func (r Root) Path(name string) string { return filepath.Join("/", string(r), name) }

// Exists reports whether a name exists.
func (r Root) Exists(name string) bool {
	_, err := os.Stat(r.Path(name))
	return err == nil
}

// List returns the names in a folder, in order; none if it does not exist.
func (r Root) List(dir string) ([]string, error) {
	entries, err := os.ReadDir(r.Path(dir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("sysfs: %w", err)
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names, nil
}

// Text returns a file's content without the white space around it; "" if it
// cannot be read, which for an attribute means that it has no value.
func (r Root) Text(file string) string {
	b, err := os.ReadFile(r.Path(file))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// Field returns the value of a "Name:\tvalue" line, as /proc/self/status has
// them; "" if there is none.
func (r Root) Field(file, name string) string {
	for line := range strings.Lines(r.Text(file)) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// Resolve follows the links of a name and returns the path from the folder base
// to where they lead; "" if that does not exist or lies elsewhere.
func (r Root) Resolve(base, name string) string {
	full, err := filepath.EvalSymlinks(r.Path(name))
	if err != nil {
		return ""
	}
	from, err := filepath.EvalSymlinks(r.Path(base))
	if err != nil {
		return ""
	}
	rel, err := filepath.Rel(from, full)
	if err != nil || rel == ".." || strings.HasPrefix(rel, "../") {
		return ""
	}
	return rel
}
