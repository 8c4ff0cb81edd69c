package main

import (
	"fmt"

	"github.com/gdrpc/gdrpc/ibverbs"
	"github.com/gdrpc/gdrpc/ibverbs/route"
)

// choose fills in the ports, and which of them and which GID a connection would
// use. A connection also goes by its TCP addresses, which are not known here.
func (d *rdmaDevice) choose(ports []port) {
	d.Ports = []rdmaPort{}
	var all []route.Port
	for _, p := range ports {
		rp := route.Port{Device: d.Name, Num: p.num, Attr: p.attr, GIDs: p.gids}
		if rp.Attr.ActiveMTU == 0 {
			rp.Attr.ActiveMTU = ibverbs.MTU1024 // sysfs does not tell it, and the choice does not depend on it
		}
		all = append(all, rp)
		own := -1
		if r, err := route.Choose([]route.Port{rp}, route.Query{}); err == nil {
			own = r.GID.Index
		}
		d.Ports = append(d.Ports, p.describe(own))
	}
	best, err := route.Choose(all, route.Query{})
	if err != nil {
		d.Usable = finding{no, err.Error(), "bring the link up, with an IP address where it is Ethernet (ip link set DEV up; ip addr add ADDRESS dev DEV)"}
		return
	}
	d.Port = best.Port.Num
	d.Usable = finding{State: yes, Why: fmt.Sprintf("port %d, %s", d.Port, traits(best.GID))}
}

// traits says what speaks for a GID, or against it.
func traits(g ibverbs.GIDEntry) string {
	if g.Index < 0 {
		return "by LID, without a GID"
	}
	if g.Type == ibverbs.GIDTypeIB {
		return fmt.Sprintf("GID %d: InfiniBand", g.Index)
	}
	reach := "routable"
	if g.GID.Addr().IsLinkLocalUnicast() {
		reach = "link-local"
	}
	of := "of no network interface"
	if g.NetDev != "" {
		of = "of " + g.NetDev
	}
	return fmt.Sprintf("GID %d: %v, %s, %s", g.Index, g.Type, reach, of)
}
