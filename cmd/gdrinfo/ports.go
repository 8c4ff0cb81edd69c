package main

import (
	"errors"
	"net/netip"
	"strconv"
	"strings"
	"syscall"

	"github.com/gdrpc/gdrpc/ibverbs"
	"github.com/gdrpc/gdrpc/internal/sysfs"
)

const rdmaClass = "sys/class/infiniband/"

// port is a port as verbs sees it, and its rate, which only sysfs has in words.
type port struct {
	num  int
	attr ibverbs.PortAttr
	gids []ibverbs.GIDEntry
	rate string
}

// sysfsPorts reads the ports of a device. The active MTU is not in sysfs.
func sysfsPorts(root sysfs.Root, name string) ([]port, error) {
	dir := rdmaClass + name + "/ports"
	names, err := root.List(dir)
	if err != nil {
		return nil, err
	}
	var ports []port
	for _, n := range names {
		num, err := strconv.Atoi(n)
		if err != nil {
			continue
		}
		at := dir + "/" + n
		p := port{num: num, rate: root.Text(at + "/rate")}
		state, _, _ := strings.Cut(root.Text(at+"/state"), ":") // "4: ACTIVE"
		p.attr.State = ibverbs.PortState(number(state))
		p.attr.LID = uint16(number(root.Text(at + "/lid")))
		switch root.Text(at + "/link_layer") {
		case "InfiniBand":
			p.attr.LinkLayer = ibverbs.LinkInfiniBand
		case "Ethernet":
			p.attr.LinkLayer = ibverbs.LinkEthernet
		}
		if p.gids, err = sysfsGIDs(root, at); err != nil {
			return nil, err
		}
		ports = append(ports, p)
	}
	return ports, nil
}

// number reads a small number, decimal or with 0x; 0 if it is none.
func number(s string) uint64 {
	n, err := strconv.ParseUint(s, 0, 16)
	if err != nil {
		return 0
	}
	return n
}

// sysfsGIDs reads a port's GID table, but for the entries that are not in use.
// The kernel answers EINVAL for the type of an entry of another network
// namespace.
func sysfsGIDs(root sysfs.Root, at string) ([]ibverbs.GIDEntry, error) {
	names, err := root.List(at + "/gids")
	if err != nil {
		return nil, err
	}
	var gids []ibverbs.GIDEntry
	for _, n := range names {
		index, err := strconv.Atoi(n)
		if err != nil {
			continue
		}
		addr, err := netip.ParseAddr(root.Text(at + "/gids/" + n))
		if err != nil || addr.IsUnspecified() {
			continue
		}
		g := ibverbs.GIDEntry{GID: addr.As16(), Index: index, NetDev: root.Text(at + "/gid_attrs/ndevs/" + n)}
		switch root.Text(at + "/gid_attrs/types/" + n) {
		case "RoCE v2":
			g.Type = ibverbs.GIDTypeRoCEv2
		case "IB/RoCE v1":
			g.Type = ibverbs.GIDTypeRoCEv1
			if root.Text(at+"/link_layer") == "InfiniBand" {
				g.Type = ibverbs.GIDTypeIB
			}
		default:
			continue
		}
		gids = append(gids, g)
	}
	return gids, nil
}

// queryPorts puts what the open device says in place of what sysfs says.
func queryPorts(ctx ibverbs.FabricContext, ports []port) error {
	for i := range ports {
		var err error
		if ports[i].attr, err = ctx.QueryPort(ports[i].num); err != nil {
			return err
		}
		if ports[i].gids, err = ctx.GIDs(ports[i].num); err != nil {
			return err
		}
	}
	return nil
}

// describe makes a port's part of the report. chosen is the index of its GID.
func (p port) describe(chosen int) rdmaPort {
	r := rdmaPort{
		Number: p.num, Rate: p.rate, MTU: p.attr.ActiveMTU.Bytes(), LID: int(p.attr.LID), GID: chosen, GIDs: []gid{},
		State:     strings.TrimPrefix(p.attr.State.String(), "IBV_PORT_"),
		LinkLayer: map[ibverbs.LinkLayer]string{ibverbs.LinkEthernet: "Ethernet", ibverbs.LinkInfiniBand: "InfiniBand"}[p.attr.LinkLayer],
	}
	for _, g := range p.gids {
		r.GIDs = append(r.GIDs, gid{Index: g.Index, Address: g.GID.Addr().String(), Type: g.Type.String(), NetDev: g.NetDev})
	}
	return r
}

func isErrno(err error, e *syscall.Errno) bool { return errors.As(err, e) }

func isNotSupported(err error) bool {
	return errors.Is(err, ibverbs.ErrNotSupported) || errors.Is(err, syscall.EOPNOTSUPP) || errors.Is(err, syscall.EPROTONOSUPPORT)
}
