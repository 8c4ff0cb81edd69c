package main

import (
	"fmt"
	"math"
	"strconv"
)

func memory(s sources) (memoryPart, error) {
	m := memoryPart{PeerClients: []peerClient{}}
	const peers = "sys/kernel/mm/memory_peers"
	clients, err := s.root.List(peers)
	if err != nil {
		return m, err
	}
	for _, c := range clients {
		if v := peers + "/" + c + "/version"; s.root.Exists(v) {
			m.PeerClients = append(m.PeerClients, peerClient{Name: c, Version: s.root.Text(v)})
		}
	}
	switch {
	case present(s, "nvidia_peermem") || len(m.PeerClients) > 0:
		m.PeerMemory = finding{State: yes}
	case present(s, "nvidia"):
		m.PeerMemory = finding{no, "nvidia_peermem is not loaded", "modprobe nvidia_peermem"}
	default:
		m.PeerMemory = finding{no, "neither nvidia nor nvidia_peermem is loaded", "install the NVIDIA driver"}
	}
	m.limit(s)
	return m, nil
}

// ample is as much locked memory as serves small pools and the lanes of many
// connections.
const ample = 64 << 20

// limit says whether locked memory will do. Registered host memory counts
// against the limit, but not for a process that has CAP_IPC_LOCK.
func (m *memoryPart) limit(s sources) {
	soft, hard, err := s.memlock()
	if err != nil {
		m.Memlock = finding{State: unknown, Why: fmt.Sprintf("getrlimit: %v", err)}
		return
	}
	m.MemlockSoft, m.MemlockHard = signed(soft), signed(hard)
	switch {
	case canLock(s):
		m.Memlock = finding{State: yes, Why: "CAP_IPC_LOCK lifts the limit"}
	case soft == math.MaxUint64:
		m.Memlock = finding{State: yes, Why: "unlimited"}
	case soft >= ample:
		m.Memlock = finding{State: yes, Why: size(soft) + ", which pools of host memory must fit into"}
	default:
		m.Memlock = finding{no, size(soft) + " is too little to register memory",
			"ulimit -l unlimited; LimitMEMLOCK=infinity in a systemd unit; --ulimit memlock=-1 for a container"}
	}
}

// signed turns the kernel's "unlimited" into -1.
func signed(n uint64) int64 {
	if n > math.MaxInt64 {
		return -1
	}
	return int64(n)
}

// canLock reports CAP_IPC_LOCK.
func canLock(s sources) bool {
	const capIPCLock = 14
	caps, err := strconv.ParseUint(s.root.Field("proc/self/status", "CapEff"), 16, 64)
	return err == nil && caps&(1<<capIPCLock) != 0
}

// size is a number of bytes for people.
func size(n uint64) string {
	for _, u := range []struct {
		shift int
		name  string
	}{{30, "GiB"}, {20, "MiB"}, {10, "KiB"}} {
		if n >= 1<<u.shift {
			return fmt.Sprintf("%d %s", n>>u.shift, u.name)
		}
	}
	return fmt.Sprintf("%d bytes", n)
}
