package main

// reportVersion is the version of the JSON forms. It changes when a field
// changes its meaning or goes; new fields do not change it.
const reportVersion = 1

// report is what a machine can do. docs/gdrinfo.md has the meaning of each field.
type report struct {
	Version  int         `json:"version"`
	Kernel   kernelPart  `json:"kernel"`
	RDMA     rdmaPart    `json:"rdma"`
	GPU      gpuPart     `json:"gpu"`
	Affinity []affinity  `json:"affinity"`
	Memory   memoryPart  `json:"memory"`
	IPC      ipcPart     `json:"ipc"`
	Paths    []pathEntry `json:"paths"`
}

type kernelPart struct {
	Release string   `json:"release"`
	Modules []module `json:"modules"`
}

type module struct {
	Name    string `json:"name"`
	State   string `json:"state"` // loaded, built-in or absent
	Version string `json:"version"`
	purpose string
}

type rdmaPart struct {
	Library finding      `json:"library"`
	Devices []rdmaDevice `json:"devices"`
}

type rdmaDevice struct {
	Name     string     `json:"name"`
	PCI      string     `json:"pci"`
	PhysFn   string     `json:"physical_function"`
	NUMANode int        `json:"numa_node"`
	NetDevs  []string   `json:"netdevs"`
	Firmware string     `json:"firmware"`
	Opens    finding    `json:"opens"`
	DMABuf   finding    `json:"dma_buf"`
	Port     int        `json:"port"` // the chosen one, 0 for none
	Usable   finding    `json:"usable"`
	Ports    []rdmaPort `json:"ports"`
}

type rdmaPort struct {
	Number    int    `json:"number"`
	State     string `json:"state"`
	LinkLayer string `json:"link_layer"`
	Rate      string `json:"rate"`
	MTU       int    `json:"mtu"`
	LID       int    `json:"lid"`
	GID       int    `json:"gid"` // index of the chosen one, -1 for none
	GIDs      []gid  `json:"gids"`
}

type gid struct {
	Index   int    `json:"index"`
	Address string `json:"address"`
	Type    string `json:"type"`
	NetDev  string `json:"netdev"`
}

type gpuPart struct {
	NVML    finding     `json:"nvml"`
	CUDA    finding     `json:"cuda"`
	Driver  string      `json:"driver_version"`
	CUDAVer string      `json:"cuda_version"`
	Devices []gpuDevice `json:"devices"`
}

type gpuDevice struct {
	PCI      string  `json:"pci"`
	Name     string  `json:"name"`
	UUID     string  `json:"uuid"`
	NUMANode int     `json:"numa_node"`
	Memory   uint64  `json:"memory_bytes"`
	BAR1     uint64  `json:"bar1_bytes"`
	Usable   finding `json:"usable"`
	RDMA     finding `json:"gpudirect_rdma"`
	DMABuf   finding `json:"dma_buf"`
	IPC      finding `json:"ipc"`
	Ordering string  `json:"writes_ordering"`
}

// hostMemory names the host's memory where a GPU's has a bus id.
const hostMemory = "host"

type affinity struct {
	Memory  string        `json:"memory"` // hostMemory, or a GPU's bus id
	Class   string        `json:"class"`
	Nearest []string      `json:"nearest"`
	NICs    []affinityNIC `json:"nics"`
}

type affinityNIC struct {
	NIC   string `json:"nic"`
	Class string `json:"class"`
	Rank  int    `json:"rank"`
	Hint  string `json:"hint"`
}

type memoryPart struct {
	PeerMemory  finding      `json:"peer_memory"`
	PeerClients []peerClient `json:"peer_clients"`
	MemlockSoft int64        `json:"memlock_soft_bytes"` // -1: unlimited
	MemlockHard int64        `json:"memlock_hard_bytes"`
	Memlock     finding      `json:"memlock"`
}

type peerClient struct {
	Name    string `json:"name"`
	Version string `json:"version"`
}

type ipcPart struct {
	UnixSockets finding `json:"abstract_unix_sockets"`
	Memfd       finding `json:"sealed_memfd"`
}

// pathEntry is what happens between one kind of memory and one NIC.
type pathEntry struct {
	Memory  string `json:"memory"` // hostMemory, or a GPU's bus id
	NIC     string `json:"nic"`    // empty: the machine has none
	Class   string `json:"class"`
	Nearest bool   `json:"nearest"`
	Path    string `json:"path"`
	Better  string `json:"better"` // the next better path; empty if Path is the best
	Step    string `json:"step"`   // what it fails at
	Why     string `json:"why"`
	Remedy  string `json:"remedy"`
}
