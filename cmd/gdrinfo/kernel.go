package main

import "strings"

// wanted are the modules that matter to gdrpc.
var wanted = [...]struct{ name, purpose string }{
	{"ib_uverbs", "RDMA from programs"},
	{"rdma_rxe", "Soft-RoCE: RDMA without a NIC for it"},
	{"mlx5_ib", "NVIDIA ConnectX and BlueField NICs"},
	{"nvidia", "NVIDIA GPUs"},
	{"nvidia_peermem", "GPU memory for NICs without dma-buf"},
	{"gdrdrv", "GDRCopy; gdrpc does not use it"},
}

func kernel(s sources) kernelPart {
	k := kernelPart{Release: s.release()}
	loaded := make(map[string]bool)
	for line := range strings.Lines(s.root.Text("proc/modules")) {
		name, _, _ := strings.Cut(line, " ")
		loaded[name] = true
	}
	for _, w := range wanted {
		m := module{Name: w.name, State: "absent", purpose: w.purpose}
		switch {
		case loaded[w.name]:
			m.State = "loaded"
		case s.root.Exists("sys/module/" + w.name):
			m.State = "built-in"
		}
		if m.State != "absent" {
			m.Version = s.root.Text("sys/module/" + w.name + "/version")
		}
		k.Modules = append(k.Modules, m)
	}
	return k
}

// present reports whether a module is in the kernel.
func present(s sources, name string) bool { return s.root.Exists("sys/module/" + name) }
