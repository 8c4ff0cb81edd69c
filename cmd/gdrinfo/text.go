package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
)

// printer writes a report for people. The first error of the writer sticks.
type printer struct {
	w   io.Writer
	err error
}

func (p *printer) line(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, format+"\n", args...)
	}
}

// table writes rows of cells in columns, two spaces in.
func (p *printer) table(rows [][]string) {
	var b strings.Builder
	tw := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, r := range rows {
		fmt.Fprintln(tw, strings.Join(r, "\t"))
	}
	tw.Flush() // to memory, so without an error
	for l := range strings.Lines(b.String()) {
		p.line("  %s", strings.TrimRight(l, " \n"))
	}
}

// text writes the whole report.
func (r *report) text(w io.Writer) error {
	p := &printer{w: w}
	r.kernelText(p)
	r.rdmaText(p)
	r.gpuText(p)
	r.affinityText(p)
	r.memoryText(p)
	r.pathText(p)
	return p.err
}

func (r *report) kernelText(p *printer) {
	p.line("Kernel %s", cmp.Or(r.Kernel.Release, "unknown"))
	var rows [][]string
	for _, m := range r.Kernel.Modules {
		rows = append(rows, []string{m.Name, strings.TrimSpace(m.State + " " + m.Version), m.purpose})
	}
	p.table(rows)
}

func (r *report) rdmaText(p *printer) {
	p.line("\nRDMA devices")
	rows := [][]string{{"libibverbs", r.RDMA.Library.String()}}
	if len(r.RDMA.Devices) == 0 {
		rows = append(rows, []string{"devices", "none in /sys/class/infiniband"})
	}
	p.table(rows)
	for _, d := range r.RDMA.Devices {
		at := []string{cmp.Or(d.PCI, "not on PCI")}
		if d.PhysFn != "" {
			at = append(at, "virtual function of "+d.PhysFn)
		}
		at = append(at, "NUMA node "+node(d.NUMANode))
		if len(d.NetDevs) > 0 {
			at = append(at, strings.Join(d.NetDevs, " "))
		}
		if d.Firmware != "" {
			at = append(at, "firmware "+d.Firmware)
		}
		p.line("  %s (%s)", d.Name, strings.Join(at, ", "))
		rows := [][]string{{"  opens", d.Opens.String()}, {"  dma-buf", d.DMABuf.String()}, {"  usable", d.Usable.String()}}
		for _, q := range d.Ports {
			rows = append(rows, q.rows()...)
		}
		p.table(rows)
	}
}

func (q rdmaPort) rows() [][]string {
	about := []string{q.State}
	for _, s := range []string{q.LinkLayer, q.Rate} {
		if s != "" {
			about = append(about, s)
		}
	}
	if q.MTU > 0 {
		about = append(about, fmt.Sprintf("MTU %d", q.MTU))
	}
	if q.LID > 0 {
		about = append(about, fmt.Sprintf("LID %d", q.LID))
	}
	rows := [][]string{{fmt.Sprintf("  port %d", q.Number), strings.Join(about, ", ")}}
	for _, g := range q.GIDs {
		mark := " "
		if g.Index == q.GID {
			mark = "*"
		}
		rows = append(rows, []string{fmt.Sprintf("   %sGID %d", mark, g.Index), strings.TrimSpace(g.Address + " " + g.Type + " " + g.NetDev)})
	}
	return rows
}

func node(n int) string {
	if n < 0 {
		return "unknown"
	}
	return fmt.Sprint(n)
}

func (r *report) gpuText(p *printer) {
	p.line("\nGPUs")
	rows := [][]string{{"NVML", r.GPU.NVML.String()}, {"CUDA", r.GPU.CUDA.String()}}
	if r.GPU.Driver != "" {
		rows = append(rows, []string{"driver", r.GPU.Driver + ", for CUDA " + cmp.Or(r.GPU.CUDAVer, "unknown")})
	}
	if len(r.GPU.Devices) == 0 {
		rows = append(rows, []string{"devices", "none"})
	}
	p.table(rows)
	for _, g := range r.GPU.Devices {
		about := []string{cmp.Or(g.Name, "name unknown")}
		if g.Memory > 0 {
			about = append(about, size(g.Memory)+", BAR1 "+size(g.BAR1))
		}
		about = append(about, "NUMA node "+node(g.NUMANode))
		if g.UUID != "" {
			about = append(about, g.UUID)
		}
		p.line("  %s (%s)", g.PCI, strings.Join(about, ", "))
		p.table([][]string{
			{"  usable", g.Usable.String()}, {"  GPUDirect RDMA", g.RDMA.String()},
			{"  dma-buf", g.DMABuf.String()}, {"  IPC", g.IPC.String()},
			{"  RDMA writes ordered for", cmp.Or(g.Ordering, "unknown")},
		})
	}
}

// affinityText prints the matrix. A star marks the NICs that a memory should
// use.
func (r *report) affinityText(p *printer) {
	if len(r.RDMA.Devices) == 0 {
		return
	}
	p.line("\nAffinity (* nearest usable, shared out between the GPUs)")
	head := []string{""}
	for _, d := range r.RDMA.Devices {
		head = append(head, d.Name)
	}
	rows := [][]string{head}
	var hints []string
	for _, a := range r.Affinity {
		row := []string{a.Memory}
		for _, d := range r.RDMA.Devices {
			n := a.of(d.Name)
			if slices.Contains(a.Nearest, d.Name) {
				n.Class += "*"
				if n.Hint != "" {
					hints = append(hints, fmt.Sprintf("%s and %s: %s", a.Memory, d.Name, n.Hint))
				}
			}
			row = append(row, n.Class)
		}
		rows = append(rows, row)
	}
	p.table(rows)
	for _, h := range hints {
		p.line("  %s", h)
	}
}

func (r *report) memoryText(p *printer) {
	p.line("\nMemory and IPC")
	peer := r.Memory.PeerMemory.String()
	for _, c := range r.Memory.PeerClients {
		peer += fmt.Sprintf(", %s %s", c.Name, c.Version)
	}
	p.table([][]string{
		{"peer memory", peer},
		{"locked memory", r.Memory.Memlock.String()},
		{"abstract Unix sockets", r.IPC.UnixSockets.String()},
		{"sealed memfd", r.IPC.Memfd.String()},
	})
}

// pathText prints a row for each pair, and each distinct reason once below.
func (r *report) pathText(p *printer) {
	p.line("\nPaths to other machines (* nearest usable)")
	rows := [][]string{{"memory", "NIC", "distance", "path", "better", "fails at"}}
	var notes []string
	for _, e := range r.Paths {
		class, fails := e.Class, ""
		if e.Nearest {
			class += "*"
		}
		if e.Better != "" {
			note := e.Step + ": " + short(e.Why)
			if e.Remedy != "" {
				note += "\n      remedy: " + e.Remedy
			}
			i := slices.Index(notes, note)
			if i < 0 {
				i, notes = len(notes), append(notes, note)
			}
			fails = fmt.Sprintf("%s [%d]", e.Step, i+1)
		}
		rows = append(rows, []string{e.Memory, cmp.Or(e.NIC, "-"), class, e.Path, cmp.Or(e.Better, "-"), cmp.Or(fails, "-")})
	}
	p.table(rows)
	for i, n := range notes {
		p.line("  [%d] %s", i+1, n)
	}
}
