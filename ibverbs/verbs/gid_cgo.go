//go:build linux && cgo

package verbs

// #include "shim.h"
import "C"

import (
	"fmt"
	"net"

	"github.com/gdrpc/gdrpc/ibverbs"
)

// GIDs returns the port's source addresses by index. On kernels, or with
// libraries, that have no table to ask for, it reads sysfs.
func (c *Context) GIDs(port int) ([]ibverbs.GIDEntry, error) {
	if err := c.enter("query_gid_table"); err != nil {
		return nil, err
	}
	defer c.life.RUnlock()
	attr, err := c.portAttr("query_gid_table", port)
	if err != nil {
		return nil, err
	}
	if gids, ok := c.gidTable(port); ok {
		return gids, nil
	}
	dir := gidDir{path: fmt.Sprintf("%s/%s/ports/%d", c.lib.sysfs, c.dev.name, port), ib: attr.link_layer == C.uint8_t(ibverbs.LinkInfiniBand)}
	gids, err := dir.entries(int(attr.gid_tbl_len))
	if err != nil {
		return nil, c.refuse("query_gid_table", err, "mount sysfs")
	}
	return gids, nil
}

// gidTable asks libibverbs. It returns false if that does not work here.
//
//	ssize_t ibv_query_gid_table(struct ibv_context *context, struct ibv_gid_entry *entries, size_t max_entries, uint32_t flags)
func (c *Context) gidTable(port int) ([]ibverbs.GIDEntry, bool) {
	size := 0
	for p := 1; p <= c.NumPorts(); p++ {
		a, err := c.portAttr("query_gid_table", p)
		if err != nil {
			return nil, false
		}
		size += int(a.gid_tbl_len)
	}
	if size == 0 {
		return nil, true
	}
	table := make([]C.struct_gv_gid_entry, size)
	n := int(C.gv_query_gid_table(c.lib.fn, c.c, &table[0], C.size_t(size)))
	if n < 0 || n > size {
		return nil, false
	}
	var gids []ibverbs.GIDEntry
	for _, e := range table[:n] {
		if int(e.port_num) == port {
			gids = append(gids, gidOf(e))
		}
	}
	return sortGIDs(gids), true
}

// gidOf converts a row.
func gidOf(e C.struct_gv_gid_entry) ibverbs.GIDEntry {
	g := ibverbs.GIDEntry{Index: int(e.gid_index), Type: ibverbs.GIDType(e.gid_type)}
	for i, b := range e.gid {
		g.GID[i] = byte(b)
	}
	if nif, err := net.InterfaceByIndex(int(e.ndev_ifindex)); err == nil {
		g.NetDev = netDev(nif, g.GID.Addr())
	}
	return g
}
