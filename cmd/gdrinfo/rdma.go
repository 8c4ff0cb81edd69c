package main

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/gdrpc/gdrpc/ibverbs"
	"github.com/gdrpc/gdrpc/internal/topology"
	"golang.org/x/sys/unix"
)

// rdma lists what the kernel has (sysfs), and what of it this process can open
// (verbs).
func rdma(s sources, tree *topology.Tree) (rdmaPart, error) {
	devices, err := s.verbs()
	part := rdmaPart{Library: library(err), Devices: []rdmaDevice{}}
	open := make(map[string]ibverbs.Device)
	for _, d := range devices {
		open[d.Name()] = d
	}
	for _, n := range tree.NICs() {
		d := rdmaDevice{
			Name: n.Name, PCI: string(n.BusID), PhysFn: string(n.PhysFn), NUMANode: n.NUMANode,
			NetDevs: append([]string{}, n.NetDevs...), Firmware: s.root.Text(rdmaClass + n.Name + "/fw_ver"),
		}
		ports, err := sysfsPorts(s.root, n.Name)
		if err != nil {
			return part, err
		}
		d.ask(s, open[n.Name], part.Library, ports)
		part.Devices = append(part.Devices, d)
	}
	return part, nil
}

// library is the finding of libibverbs, by the answer to listing the devices.
func library(err error) finding {
	if err == nil {
		return finding{State: yes}
	}
	if !errors.Is(err, ibverbs.ErrNoDevice) {
		return refused(err)
	}
	f := finding{State: yes, Why: "installed; it lists no device"}
	var e *ibverbs.Error
	if errors.As(err, &e) && e.Err != ibverbs.ErrNoDevice {
		f.Why += ": " + e.Err.Error()
	}
	return f // the devices and paths have the remedies
}

// ask opens the device and takes from it what sysfs does not know. ports are
// sysfs's.
func (d *rdmaDevice) ask(s sources, dev ibverbs.Device, lib finding, ports []port) {
	defer func() { d.choose(ports) }()
	d.DMABuf = finding{State: unknown, Why: d.Name + " cannot be opened"}
	switch {
	case lib.State != yes:
		d.Opens = finding{State: unknown, Why: lib.Why, Remedy: lib.Remedy}
		return
	case dev == nil:
		d.Opens = notListed(s, d.Name)
		return
	}
	ctx, err := dev.Open()
	if err != nil {
		d.Opens = refused(err)
		return
	}
	defer ctx.Close()
	d.Opens = finding{State: yes}
	d.DMABuf = probeDMABuf(ctx)
	if f, ok := ctx.(ibverbs.FabricContext); ok {
		if err := queryPorts(f, ports); err != nil {
			d.Opens = refused(err)
		}
	}
}

// notListed says why the kernel has a device that libibverbs does not list.
func notListed(s sources, name string) finding {
	const remedy = "in a container pass the devices in: --device=/dev/infiniband"
	node := uverbsNode(s, name)
	switch {
	case node == "" && present(s, "ib_uverbs"):
		return finding{no, "the kernel has no verbs device for it", "dmesg may tell why"}
	case node == "":
		return finding{no, "ib_uverbs is not loaded", "modprobe ib_uverbs"}
	}
	path := "dev/infiniband/" + node
	if !s.root.Exists(path) {
		return finding{no, "/" + path + " does not exist", remedy}
	}
	if err := unix.Access(s.root.Path(path), unix.R_OK|unix.W_OK); err != nil {
		return finding{no, fmt.Sprintf("/%s: %v", path, err), "let this user read and write it"}
	}
	return finding{no, "libibverbs does not list it: it has no driver for it", "install the NIC's user space driver (rdma-core)"}
}

// uverbsNode returns the name of a device's node in /dev/infiniband.
func uverbsNode(s sources, name string) string {
	const class = "sys/class/infiniband_verbs"
	nodes, err := s.root.List(class)
	if err != nil {
		return ""
	}
	for _, n := range nodes {
		if s.root.Text(class+"/"+n+"/ibdev") == name {
			return n
		}
	}
	return ""
}

// probeDMABuf asks the kernel to register a buffer that does not exist. It looks
// at the descriptor only if the device can do it at all.
func probeDMABuf(ctx ibverbs.Context) finding {
	pd, err := ctx.AllocPD()
	if err != nil {
		return finding{State: unknown, Why: err.Error()}
	}
	defer pd.Dealloc()
	d, ok := pd.(ibverbs.DevicePD)
	if !ok {
		return finding{State: no, Why: "the provider registers host memory only"}
	}
	const page = 4096
	mr, err := d.RegDMABufMR(0, page, 0, -1, ibverbs.AccessLocalWrite)
	return dmaBufOutcome(mr, err)
}

// dmaBufOutcome reads the answer to the probe.
func dmaBufOutcome(mr ibverbs.MR, err error) finding {
	switch e := syscall.Errno(0); {
	case err == nil:
		_ = mr.Dereg()
		return finding{State: unknown, Why: "the probe was accepted without a buffer"}
	case isErrno(err, &e) && e == syscall.EBADF:
		return finding{State: yes}
	case isNotSupported(err):
		f := refused(err)
		f.Remedy = "a kernel of 5.12 or later whose driver has reg_user_mr_dmabuf, or peer memory (modprobe nvidia_peermem)"
		return f
	}
	return finding{State: unknown, Why: err.Error()}
}
