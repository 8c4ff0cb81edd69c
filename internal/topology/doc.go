// Package topology tells how near each RDMA NIC of this machine is to each GPU,
// and which NICs a GPU should use.
//
// It reads sysfs: the PCI tree (/sys/bus/pci/devices), the RDMA devices
// (/sys/class/infiniband), the NUMA nodes, and for host memory the CPUs that
// this process may run on (/proc/self/status). It opens no device, and needs no
// privilege, no cgo and no hardware.
//
// Distances have the names that `nvidia-smi topo -m` gives them: PIX, PXB, PHB,
// NODE, SYS. A guest of a virtual machine sees the PCI tree that its hypervisor
// shows, which may be flat where the host's is not.
//
// A Tree does not change once it has been read, and may be used from any
// goroutine.
package topology
