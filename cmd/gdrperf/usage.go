package main

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gdrpc/gdrpc/cmd/gdrperf/perfpb"
	"github.com/gdrpc/gdrpc/gpubuf"
)

// usage says what this process uses, after it did what req asks for.
func usage(req *perfpb.UsageRequest, mem *memory) (*perfpb.Usage, error) {
	if req.GetSettle() {
		debug.FreeOSMemory()
	}
	var r unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &r); err != nil {
		return nil, fmt.Errorf("getrusage: %w", err)
	}
	rss, err := residentBytes()
	if err != nil {
		return nil, err
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	u := &perfpb.Usage{
		CpuNanos:   r.Utime.Nano() + r.Stime.Nano(),
		RssBytes:   rss,
		HeapBytes:  int64(m.HeapInuse + m.StackInuse),
		Goroutines: int64(runtime.NumGoroutine()),
	}
	for _, p := range []*gpubuf.Pool{mem.host, mem.emu} {
		u.DeviceBytes += p.Stats().Reserved
	}
	if mem.device != nil {
		st := mem.device.Stats()
		u.PoolBytes, u.UsedBytes = st.Reserved, st.Used
		u.FreeBytes, err = freeMemory(mem.device)
	}
	return u, err
}

// residentBytes is the process's resident memory without mapped files, which
// are its program text (proc_pid_status(5)).
func residentBytes() (int64, error) {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, err
	}
	var total int64
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(line, ":")
		if name != "RssAnon" && name != "RssShmem" {
			continue
		}
		kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("/proc/self/status: %s: %w", name, err)
		}
		total += kib << 10
	}
	return total, nil
}

// diff is what b uses more than a, for each of n.
func diff(a, b *perfpb.Usage, n int64) *perfpb.Usage {
	return &perfpb.Usage{
		CpuNanos:    (b.GetCpuNanos() - a.GetCpuNanos()) / n,
		RssBytes:    (b.GetRssBytes() - a.GetRssBytes()) / n,
		HeapBytes:   (b.GetHeapBytes() - a.GetHeapBytes()) / n,
		DeviceBytes: (b.GetDeviceBytes() - a.GetDeviceBytes()) / n,
		Goroutines:  (b.GetGoroutines() - a.GetGoroutines()) / n,
	}
}
