package conn

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/gdrpc/gdrpc/ibverbs/route"
)

// errNoNIC: there is nothing to run mode verbs on.
var errNoNIC = errors.New("no RDMA devices are configured on this side (conn.Config.NICs)")

// ports returns the ports of an open device as they are now.
func (n *nic) ports() (ports []route.Port, err error) {
	if n.fabric == nil {
		return nil, fmt.Errorf("%s has no ports", n.dev.Name())
	}
	if err := n.usable(); err != nil {
		return nil, err
	}
	for num := 1; num <= n.fabric.NumPorts(); num++ {
		p := route.Port{Device: n.dev.Name(), Num: num}
		if p.Attr, err = n.fabric.QueryPort(num); err != nil {
			return nil, err
		}
		if p.GIDs, err = n.fabric.GIDs(num); err != nil {
			return nil, err
		}
		ports = append(ports, p)
	}
	return ports, nil
}

// route chooses a port of one of the NICs among for a connection whose TCP
// socket has the local address given. peer may be nil.
func (d *Domain) route(among []*nic, local netip.Addr, peer *route.Endpoint) (*nic, route.Route, error) {
	if len(among) == 0 {
		return nil, route.Route{}, errNoNIC
	}
	var ports []route.Port
	var errs []error
	byName := make(map[string]*nic)
	for _, n := range among {
		p, err := n.ports()
		if err != nil {
			errs = append(errs, err)
		}
		ports = append(ports, p...)
		byName[n.dev.Name()] = n
	}
	r, err := route.Choose(ports, route.Query{Override: d.cfg.Route, Local: local, Subnets: subnets(), Peer: peer})
	if err != nil {
		return nil, r, errors.Join(append(errs, err)...)
	}
	return byName[r.Port.Device], r, nil
}

// subnets returns the prefixes of this host's interfaces by name. Where they
// cannot be read, routes are chosen without.
func subnets() map[string][]netip.Prefix {
	ifaces, err := net.Interfaces()
	if err != nil {
		return nil
	}
	all := make(map[string][]netip.Prefix)
	for _, i := range ifaces {
		addrs, err := i.Addrs()
		if err != nil {
			continue
		}
		for _, a := range addrs {
			if p, err := netip.ParsePrefix(a.String()); err == nil {
				all[i.Name] = append(all[i.Name], p)
			}
		}
	}
	return all
}

// addrOf returns the IP address of a TCP address; invalid if it is none.
func addrOf(a net.Addr) netip.Addr {
	if t, ok := a.(*net.TCPAddr); ok {
		return t.AddrPort().Addr()
	}
	return netip.Addr{}
}

// checkRoute holds what the user has ordered to what exists.
func (d *Domain) checkRoute() error {
	if d.cfg.Route == (route.Override{}) {
		return nil
	}
	if _, _, err := d.route(d.nics, netip.Addr{}, nil); err != nil {
		return fmt.Errorf("conn: Config.Route %+v: %w", d.cfg.Route, err)
	}
	return nil
}
