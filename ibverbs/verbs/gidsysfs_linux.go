package verbs

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/gdrpc/gdrpc/ibverbs"
)

// gidDir is a port's directory in sysfs.
type gidDir struct {
	path string
	ib   bool // the port is on InfiniBand
}

// entries reads the first n rows of the port's GID table. Empty rows, and those
// whose type cannot be read, as in a container that does not own the network
// interface (EINVAL), are left out.
func (d gidDir) entries(n int) ([]ibverbs.GIDEntry, error) {
	if _, err := os.Stat(d.path + "/gids"); err != nil {
		return nil, err
	}
	var gids []ibverbs.GIDEntry
	for i := range n {
		g, ok, err := d.entry(i)
		if err != nil {
			return nil, err
		}
		if ok {
			gids = append(gids, g)
		}
	}
	return gids, nil
}

// entry reads one row and returns whether it is in use.
func (d gidDir) entry(i int) (g ibverbs.GIDEntry, ok bool, err error) {
	text, err := d.read("gids", i)
	if errors.Is(err, fs.ErrNotExist) {
		return g, false, nil
	}
	if err != nil {
		return g, false, err
	}
	addr, err := netip.ParseAddr(text)
	if err != nil {
		return g, false, fmt.Errorf("%s/gids/%d: %w", d.path, i, err)
	}
	g = ibverbs.GIDEntry{GID: addr.As16(), Index: i}
	if g.GID == (ibverbs.GID{}) {
		return g, false, nil
	}
	kind, err := d.read("gid_attrs/types", i)
	if err != nil {
		return g, false, nil // EINVAL: not of this container
	}
	g.Type = d.gidType(kind)
	name, _ := d.read("gid_attrs/ndevs", i) // InfiniBand has none
	if nif, err := net.InterfaceByName(name); err == nil {
		g.NetDev = netDev(nif, g.GID.Addr())
	}
	return g, true, nil
}

// gidType translates the kernel's name, which does not tell InfiniBand from RoCE
// v1.
func (d gidDir) gidType(name string) ibverbs.GIDType {
	switch {
	case name == ibverbs.GIDTypeRoCEv2.String():
		return ibverbs.GIDTypeRoCEv2
	case d.ib:
		return ibverbs.GIDTypeIB
	}
	return ibverbs.GIDTypeRoCEv1
}

func (d gidDir) read(dir string, i int) (string, error) {
	b, err := os.ReadFile(d.path + "/" + dir + "/" + strconv.Itoa(i))
	return strings.TrimSpace(string(b)), err
}

// netDev is the interface's name if it is the one of a GID, else empty. The kernel
// tells of the interfaces of all network namespaces, which have the same names and
// numbers, so an interface of this one counts only if it has the address. Devices
// make link-local addresses of their own.
func netDev(nif *net.Interface, addr netip.Addr) string {
	if addr.IsLinkLocalUnicast() {
		return nif.Name
	}
	addrs, err := nif.Addrs()
	if err != nil {
		return ""
	}
	for _, a := range addrs {
		if ip, ok := a.(*net.IPNet); ok && ip.IP.Equal(addr.AsSlice()) {
			return nif.Name
		}
	}
	return ""
}

// sortGIDs sorts by index and drops empty entries.
func sortGIDs(gids []ibverbs.GIDEntry) []ibverbs.GIDEntry {
	gids = slices.DeleteFunc(gids, func(g ibverbs.GIDEntry) bool { return g.GID == ibverbs.GID{} })
	slices.SortFunc(gids, func(a, b ibverbs.GIDEntry) int { return cmp.Compare(a.Index, b.Index) })
	return gids
}
