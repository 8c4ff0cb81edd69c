package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// stockCopies is about how many times the two processes together hold a message
// of stock gRPC, garbage included.
const stockCopies = 14

// checkMemory fails if the file will not fit: the client holds it twice and the
// server once, in what is device memory to them but host memory to the machine,
// unless the device is a real GPU.
func checkMemory(device string, size int64) error {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return nil // not Linux: try
	}
	need := stockCopies * min(size, stockMost)
	if kind, _, _ := strings.Cut(device, ":"); kind != "cuda" {
		need += 3 * size
	}
	if available, ok := memAvailable(string(text)); ok && need > available {
		return fmt.Errorf("a file of %d bytes takes about %d bytes of memory in both processes; %d are available", size, need, available)
	}
	return nil
}

// memAvailable finds what can be used without swapping (proc_meminfo(5)).
func memAvailable(meminfo string) (bytes int64, ok bool) {
	_, rest, ok := strings.Cut(meminfo, "MemAvailable:")
	fields := strings.Fields(rest)
	if !ok || len(fields) == 0 {
		return 0, false
	}
	kib, err := strconv.ParseInt(fields[0], 10, 64)
	return kib << 10, err == nil
}
