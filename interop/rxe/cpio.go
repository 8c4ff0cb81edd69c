package main

import (
	"fmt"
	"io"
	"os"
	"path"
)

// cpio writes an archive of the "newc" format, which the kernel unpacks into
// its first file system (Documentation/driver-api/early-userspace/buffer-format).
// The first error stays and is returned by close.
type cpio struct {
	w    io.Writer
	n    int64 // bytes written
	ino  int
	made map[string]bool // names in the archive
	err  error
}

func newCPIO(w io.Writer) *cpio { return &cpio{w: w, made: map[string]bool{"/": true, ".": true}} }

// add writes an entry and the folders above it, unless the name is there.
// Names are absolute.
func (c *cpio) add(name string, mode os.FileMode, data []byte) {
	if c.made[name] {
		return
	}
	c.made[name] = true
	c.add(path.Dir(name), os.ModeDir|0o755, nil)
	bits, links := uint32(mode.Perm()), 1
	switch mode.Type() {
	case os.ModeDir:
		bits, links = bits|0o040000, 2
	case os.ModeSymlink:
		bits |= 0o120000
	default:
		bits |= 0o100000
	}
	c.ino++
	c.entry(c.ino, bits, links, name[1:], data)
}

// entry writes a header, the name and the data. The times and ids are zero.
func (c *cpio) entry(ino int, mode uint32, links int, name string, data []byte) {
	const uid, gid, mtime, major, minor = 0, 0, 0, 0, 0
	c.write(fmt.Appendf(nil, "070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x", ino, mode, uid, gid, links,
		mtime, len(data), major, minor, major, minor, len(name)+1, 0))
	c.write(append([]byte(name), 0))
	c.pad()
	c.write(data)
	c.pad()
}

func (c *cpio) write(p []byte) {
	if c.err == nil {
		_, c.err = c.w.Write(p)
		c.n += int64(len(p))
	}
}

func (c *cpio) pad() { c.write(make([]byte, -c.n&3)) }

// close writes the end of the archive.
func (c *cpio) close() error {
	c.entry(0, 0, 1, "TRAILER!!!", nil)
	return c.err
}
