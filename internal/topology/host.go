package topology

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// NearestHost returns which of nics this process should use for host memory,
// and their distance. If the CPUs that it may run on are all of one NUMA node,
// these are that node's NICs, or all if it has none. A process that may run on
// several nodes has memory on all of them: it gets all NICs of these nodes, to
// be used in turn, with SYS. Of a NIC's virtual functions only one is used, and
// NICs that have no place in the PCI tree only if there are no others. The
// result is empty, with Unknown, if there are none.
func (t *Tree) NearestHost(nics []NIC) (best []NIC, class Class) {
	for _, l := range t.HostLinks(nics) {
		if len(best) == 0 {
			class = l.Class
		}
		if l.Class == class {
			best = append(best, l.NIC)
		}
	}
	if len(best) == 0 {
		return nil, Unknown
	}
	if class == SYS && slices.ContainsFunc(best, t.onAllowedNode) {
		best = slices.DeleteFunc(best, func(n NIC) bool { return !t.onAllowedNode(n) })
	}
	return onePerLink(best), class
}

// HostLinks returns all nics as this process's host memory sees them, nearest
// first.
func (t *Tree) HostLinks(nics []NIC) []Link {
	return rank(nics, func(n NIC) Class {
		if _, ok := t.functions[n.BusID]; !ok {
			return Unknown
		}
		if len(t.allowed) <= 1 && t.onAllowedNode(n) {
			return NODE
		}
		return SYS
	})
}

func (t *Tree) onAllowedNode(n NIC) bool {
	if t.online <= 1 || len(t.allowed) == 0 {
		return true
	}
	return slices.Contains(t.allowed, n.NUMANode)
}

// readNodes finds the NUMA nodes, and which of them this process may run on.
func (t *Tree) readNodes(r reader) error {
	online, err := parseList(r.Text("sys/devices/system/node/online"))
	if err != nil {
		return fmt.Errorf("topology: NUMA nodes: %w", err)
	}
	t.online = len(online)
	cpus, err := parseList(r.Field("proc/self/status", "Cpus_allowed_list"))
	if err != nil {
		return fmt.Errorf("topology: allowed CPUs: %w", err)
	}
	for _, node := range online {
		of, err := parseList(r.Text(fmt.Sprintf("sys/devices/system/node/node%d/cpulist", node)))
		if err != nil {
			return fmt.Errorf("topology: CPUs of NUMA node %d: %w", node, err)
		}
		if slices.ContainsFunc(of, func(cpu int) bool { return slices.Contains(cpus, cpu) }) {
			t.allowed = append(t.allowed, node)
		}
	}
	return nil
}

// maxListed bounds a list from the kernel, whose largest are of CPUs.
const maxListed = 1 << 16

// parseList reads the kernel's notation of sets, "0-3,8" (cpuset(7), list
// format).
func parseList(s string) ([]int, error) {
	var set []int
	for part := range strings.SplitSeq(s, ",") {
		if part == "" {
			continue
		}
		first, last, ranged := strings.Cut(part, "-")
		if !ranged {
			last = first
		}
		from, err := strconv.Atoi(first)
		if err != nil {
			return nil, err
		}
		to, err := strconv.Atoi(last)
		if err != nil {
			return nil, err
		}
		if from < 0 || to < from || to-from >= maxListed || len(set)+to-from >= maxListed {
			return nil, fmt.Errorf("list %q: bad range", s)
		}
		for n := from; n <= to; n++ {
			set = append(set, n)
		}
	}
	return set, nil
}
