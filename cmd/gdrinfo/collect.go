package main

import (
	"github.com/gdrpc/gdrpc/internal/topology"
)

// collect makes a report. An error means that the machine's sysfs cannot be
// read; what the machine lacks is in the report.
func collect(s sources) (*report, error) {
	tree, err := topology.Read(string(s.root))
	if err != nil {
		return nil, err
	}
	r := &report{Version: reportVersion, Kernel: kernel(s)}
	if r.RDMA, err = rdma(s, tree); err != nil {
		return nil, err
	}
	r.GPU = gpus(s, tree)
	r.Affinity = affinities(tree, r)
	if r.Memory, err = memory(s); err != nil {
		return nil, err
	}
	r.IPC = s.ipc()
	r.Paths = paths(s, r)
	return r, nil
}
