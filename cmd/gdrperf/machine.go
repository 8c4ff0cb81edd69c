package main

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"
)

// machine is where and when figures were measured.
type machine struct {
	CPU   string `json:"cpu"`
	Cores int    `json:"cores"`
	OS    string `json:"os"`
	Go    string `json:"go"`
	Date  string `json:"date"`
}

func thisMachine() machine {
	return machine{
		CPU: cpuModel(), Cores: runtime.NumCPU(), OS: runtime.GOOS + "/" + runtime.GOARCH,
		Go: runtime.Version(), Date: time.Now().UTC().Format(time.DateOnly),
	}
}

func (m machine) String() string {
	return fmt.Sprintf("%s, %d cores, %s, %s, %s; two processes, loopback", m.CPU, m.Cores, m.OS, m.Go, m.Date)
}

// cpuModel is what the kernel calls the processor.
func cpuModel() string {
	text, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return "unknown CPU"
	}
	for line := range strings.Lines(string(text)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return "unknown CPU"
}
